/* contents.c: identifies files by their first bytes; covers the kinds that users often pass instead of the expected file. */
#include "config.h"
#include "runtime/files/contents.h"

#include <string.h>
#include <strings.h>

#define UNPACK "unpack it first"
#define SAVED_PAGE "a web page was saved instead of the file: download the file itself"

static const struct kind {
    struct sgrad_contents is;
    size_t at, size;                    /* offset and number of the identifying bytes */
    const char *bytes;
} kinds[] = {
#define BYTES(text) sizeof text - 1, text
    { { "a Git LFS pointer", "run 'git lfs pull' in its folder" }, 0, BYTES("version https://git-lfs") },
    { { "a Git LFS pointer", "run 'git lfs pull' in its folder" }, 0, BYTES("version https://hawser") },
    { { "an empty zip archive", NULL }, 0, BYTES("PK\5\6") },
    { { "a Python pickle, written by torch.save of PyTorch before 1.6", NULL }, 0, BYTES("\x80\2\x8a\n") },
    { { "a Python pickle", NULL }, 0, BYTES("\x80\2}") },
    { { "a Python pickle", NULL }, 0, BYTES("\x80\2c") },
    { { "a Python pickle", NULL }, 0, BYTES("\x80\3}") },
    { { "a Python pickle", NULL }, 0, BYTES("\x80\3c") },
    { { "a Python pickle", NULL }, 0, BYTES("\x80\4\x95") },
    { { "a Python pickle", NULL }, 0, BYTES("\x80\5\x95") },
    { { "a gzip file", UNPACK }, 0, BYTES("\x1f\x8b\x08") },
    { { "an xz file", UNPACK },
      0,
      BYTES("\xfd"
            "7zXZ") },
    { { "a Zstandard file", UNPACK }, 0, BYTES("\x28\xb5\x2f\xfd") },
    { { "a bzip2 file", UNPACK }, 0, BYTES("BZh") },
    { { "a 7-Zip archive", UNPACK }, 0, BYTES("7z\xbc\xaf\x27\x1c") },
    { { "a tar archive", UNPACK }, 257, BYTES("ustar") },
    { { "a NumPy array (.npy)", NULL }, 0, BYTES("\x93NUMPY") },
    { { "an HDF5 file", NULL }, 0, BYTES("\x89HDF\r\n\x1a\n") },
    { { "a GGUF file, of llama.cpp", NULL }, 0, BYTES("GGUF") },
    { { "a Parquet file", NULL }, 0, BYTES("PAR1") },
    { { "an Arrow file", NULL }, 0, BYTES("ARROW1") },
    { { "a PNG image", NULL }, 0, BYTES("\x89PNG") },
    { { "a JPEG image", NULL }, 0, BYTES("\xff\xd8\xff") },
    { { "a GIF image", NULL }, 0, BYTES("GIF8") },
    { { "a TIFF image", NULL }, 0, BYTES("II*\0") },
    { { "a TIFF image", NULL }, 0, BYTES("MM\0*") },
    { { "a PDF document", NULL }, 0, BYTES("%PDF") },
    { { "a TFLite model", NULL }, 4, BYTES("TFL3") },
    { { "a program or a library", NULL },
      0,
      BYTES("\x7f"
            "ELF") },
    { { "a shell script", NULL }, 0, BYTES("#!") },
#undef BYTES
};

/* Skips a byte order mark and blanks at the start of TEXT, and reduces *SIZE accordingly. */
static const char *skip_blanks(const char *text, size_t *size) {
    if (*size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) text += 3, *size -= 3;
    while (*size && strchr(" \t\r\n", *text) && *text) text++, --*size;
    return text;
}

static bool begins(const char *text, size_t size, const char *word) {
    return size >= strlen(word) && !strncasecmp(text, word, strlen(word));
}

bool sgrad_contents_is_json(const void *first, size_t size) {
    const char *text = skip_blanks(first, &size);
    return size && (*text == '{' || *text == '[');
}

/* Identifies a zip archive by the name of its first member, which begins at byte 30. */
static const struct sgrad_contents *zip(const unsigned char *first, size_t size) {
    static const struct sgrad_contents torch = { "a PyTorch checkpoint, written by torch.save", NULL },
                                       numpy = { "a NumPy archive (.npz)", NULL }, any = { "a zip archive", NULL };
    enum { LENGTH = 26, NAME = 30 };
    char name[256] = "";
    if (size < NAME) return &any;
    size_t length = first[LENGTH] + 256u * first[LENGTH + 1];
    if (length > size - NAME) length = size - NAME;
    if (length >= sizeof name) length = sizeof name - 1;
    memcpy(name, first + NAME, length);
    if (strstr(name, "data.pkl")) return &torch;
    return strstr(name, ".npy") ? &numpy : &any;
}

const struct sgrad_contents *sgrad_contents(const void *first, size_t size) {
    static const struct sgrad_contents html = { "an HTML page", SAVED_PAGE }, xml = { "an XML document", SAVED_PAGE },
                                       json = { "JSON text", NULL }, empty = { "an empty file", NULL };
    if (!size) return &empty;
    if (size >= 4 && !memcmp(first, "PK\3\4", 4)) return zip(first, size);
    for (const struct kind *k = kinds; k < kinds + sizeof kinds / sizeof *kinds; k++)
        if (size >= k->at + k->size && !memcmp((const char *)first + k->at, k->bytes, k->size)) return &k->is;
    size_t left = size;
    const char *text = skip_blanks(first, &left);
    if (begins(text, left, "<!doctype html") || begins(text, left, "<html") || begins(text, left, "<head")) return &html;
    if (begins(text, left, "<?xml") || begins(text, left, "<error")) return &xml;
    return sgrad_contents_is_json(first, size) ? &json : NULL;
}

bool sgrad_path_leads_out(const char *path) {
    if (!*path || *path == '/') return true;
    for (const char *at = path;; at++) {
        const size_t length = strcspn(at, "/");
        if (length == 2 && !strncmp(at, "..", 2)) return true;
        if (!*(at += length)) return false;
    }
}
