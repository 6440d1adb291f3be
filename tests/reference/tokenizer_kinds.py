#!/usr/bin/env python3
"""Write tokenizer_kinds.json: small tokenizers that the library `tokenizers` trained, and the tokens that it gives for some texts.

usage: tokenizer_kinds.py > tokenizer_kinds.json

tests/cli/corpus.py also uses make_all and TEXTS.
"""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3, QWEN = WORDS % r"\p{N}{1,3}", WORDS % r"\p{N}"
END = "<|endoftext|>"


def levels(prefix=False, regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), levels(regex=False)])


def digits(each, **how):
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=each), levels(**how)])


def of_bytes(texts, size, pre_tokenizer, normalizer=None, ignore_merges=False, added=(), begin=None):
    """A tokenizer of bytes, as GPT-2's."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer:
        tokenizer.normalizer = normalizer
    special = [END] + ([begin] if begin else [])
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(list(added))
    if begin:
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin}:1 $B:1",
                                          special_tokens=[(begin, tokenizer.token_to_id(begin))])])
    return tokenizer


def of_characters(texts, size, fuse_unk=True, byte_fallback=True):
    """A tokenizer of characters, as Llama 2's."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special + [f"<0x{byte:02X}>" for byte in range(256)],
                                  limit_alphabet=300, max_token_length=12, show_progress=False)
    tokenizer.train_from_iterator((text[:400] for text in texts), trainer)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][:len(special)]        # bytes are no added tokens
    return Tokenizer.from_str(json.dumps(content))


def make_all(texts, size, names=None):
    """Yields a name and a tokenizer, of all kinds or of those in NAMES."""
    added = [AddedToken("hello", single_word=True), AddedToken("world", lstrip=True), AddedToken("to", rstrip=True, single_word=True),
             AddedToken("\n\n", normalized=False), AddedToken("12", lstrip=True, rstrip=True, normalized=False), AddedToken("123"),
             AddedToken("he", single_word=True, lstrip=True, normalized=False)]
    tools = [AddedToken("café"), AddedToken("<tool>", normalized=False)]
    kinds = {
        "gpt2": lambda: of_bytes(texts, size, levels()),
        "gpt2-prefix": lambda: of_bytes(texts, size, levels(prefix=True)),
        "gpt2-split": lambda: of_bytes(texts, size, split(GPT2)),
        "llama3": lambda: of_bytes(texts, size, split(LLAMA3), ignore_merges=True, begin="<|begin_of_text|>"),
        "qwen": lambda: of_bytes(texts, size, split(QWEN), normalizer=normalizers.NFC(), added=tools),
        "smollm": lambda: of_bytes(texts, size, digits(True)),
        "digits": lambda: of_bytes(texts, size, digits(False, prefix=True, regex=False)),
        "added": lambda: of_bytes(texts, size, levels(), added=added),
        "llama2": lambda: of_characters(texts, size),
        "unknown": lambda: of_characters(texts, size, fuse_unk=False, byte_fallback=False),
        "unknown-fused": lambda: of_characters(texts, size, byte_fallback=False),
    }
    for name in names or kinds:
        yield name, kinds[name]()


TEXTS = [
    "To be, or not to be: that's the question; we'll see what they'd SAY'LL do. I'VE it'ſ 'S",
    "  two blanks\n\nand lines\r\n \r\n\tend \n ", "1 12 123 1234 12345678 ½ Ⅻ 三 ٣٤٥", "hello, hello! world tohello to  world\n\n\n123 the he ",
    "Café café cafe\u0301 A\u030a\u0323 \u1e0b\u0323 \ufb01 \u212b \u1100\u1161\u11a8 \ud55c\uae00 \u0958", "a\u00a0b \u00a0c! \u202fd\u3000e\u0085f",
    "你好，世界。 \U0001f600\U0001f468\u200d\U0001f469 שָׁלוֹם مرحبا हिन्दी ภาษาไทย", f"{END}{END} text<|endoftext <tool>x</s><s>y<unk>▁z",
    "x_y = f(a[0])->b;  // ???...\n#include <stdio.h>\r\n\r\n", "\u24b6\u24d0hello\U0001f130 \U0010fffd\x00\x1f", " ", "\n", "'", "", "ééé ▁▁ a",
]

if __name__ == "__main__":
    for number, (name, tokenizer) in enumerate(make_all(TEXTS[:-8] * 2, 360)):
        case = {"name": name, "tokenizer": json.loads(tokenizer.to_str()), "ids": [tokenizer.encode(text, add_special_tokens=False).ids
                                                                                      for text in TEXTS],
                "decoded": [tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids, skip_special_tokens=False)
                            for text in TEXTS]}
        print("{" + f'"texts": {json.dumps(TEXTS)}, "cases": [' if not number else ",")
        print(json.dumps(case, separators=(",", ":")), end="")
    print("\n]}")
