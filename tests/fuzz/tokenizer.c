/* Any bytes as a tokenizer.json. If it is one, it encodes and decodes its own bytes, and text of many kinds. */
#include "datasets/tokenizers/tokenizer.h"

#include <string.h>

static void use(const struct sgrad_tokenizer *tokenizer, const char *text, size_t size) {
    struct sgrad_encoder *encoder = sgrad_encoder_create(tokenizer);
    struct sgrad_decoder *decoder = sgrad_decoder_create(tokenizer, size % 2);
    size_t count, bytes;
    const int32_t *token = sgrad_encode(encoder, text, size, &count);
    for (size_t i = 0; i < count; i++) sgrad_decode(decoder, token[i], &bytes);
    sgrad_decode_end(decoder, &bytes);
    sgrad_decoder_destroy(decoder);
    sgrad_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] =
        "To be <s>or  not\r\n\n e\u0301\u0323 \U0001f600 12345 it's IT'\u017F \u1100\u1161 \xF0\x9F\xFF abab";
    struct sgrad_tokenizer *tokenizer;
    if (sgrad_tokenizer_parse("fuzz", data, size, &tokenizer)) return 0;
    use(tokenizer, text, sizeof text - 1);
    use(tokenizer, (const char *)data, size < 4096 ? size : 4096);
    sgrad_tokenizer_close(tokenizer);
    return 0;
}
