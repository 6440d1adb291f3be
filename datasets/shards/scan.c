/* scan.c: finds the samples of a shard, from the headers of its members, with libarchive. The images are not read; a label is.
 *
 *     n01/0001.jpg      a sample begins: its key is "n01/0001", the path up to the first dot of the name
 *     n01/0001.cls      the label: the member has the same key
 *     n01/0001.txt      counted: 1 .txt
 *     n01/0001.npy      counted, because the sample has an image; without an image, the array is the input of the sample
 *     n01/0002.jpg      another key: the next sample
 *
 * stream.c decompresses an archive. All blocks up to the end are read, because an archive may lack its end, or be followed by
 * another one or a checksum:
 *
 *     member | member | … | end mark: two blocks of zeros | zeros
 *
 * The position of an image's bytes in the archive is that of libarchive's filters after the header was read: a tar archive has no
 * data between a header and the bytes of its member.
 *
 * Limits: no links, no sparse files. The names of libarchive's errors are those of its version. */
#include "config.h"
#include "datasets/shards/shards.h"
#include "runtime/files/contents.h"
#include "runtime/libraries.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LABEL_LIMIT ((size_t)1 << 20)
#define BOMB_LEAST  ((uint64_t)256 << 20)   /* below, no archive is refused */
#define BOMB_MOST   ((uint64_t)4 << 30)
enum { BLOCK = 1 << 16, BOMB_RATIO = 100 }; /* images in a shard hardly become smaller by compression */

void sgrad__draft_free(struct sgrad__draft *draft) {
    for (int c = 0; c < draft->classes; c++) free(draft->class_name[c]);
    free(draft->class_name);
    free(draft->sample);
    free(draft->folder);
    free(draft->text);
    sgrad_walk_free(&draft->others);
    *draft = (struct sgrad__draft){ 0 };
}

uint32_t sgrad__draft_text(struct sgrad__draft *draft, const char *text, size_t length) {
    const size_t at = draft->text_bytes, end = at + length + 1;
    if (end > draft->text_room) {
        draft->text_room = 2 * end;
        draft->text = realloc(draft->text, draft->text_room);
        if (!draft->text) abort();
    }
    memcpy(draft->text + at, text, length);
    draft->text[end - 1] = 0;
    draft->text_bytes = end;
    return (uint32_t)at;
}

#ifdef SGRAD_HAVE_LIBARCHIVE
#include <archive.h>
#include <archive_entry.h>

/* A shard that is being read. */
struct scan {
    const char *shard;
    int file;             /* negative: the archive is data */
    const void *data;
    size_t file_size;
    struct archive *archive;
    struct sgrad__stream *stream; /* decompresses the file for archive; NULL: the file is not compressed */
    char *block;                  /* BLOCK bytes of stream */
    uint64_t most;                /* bytes of stream that an archive of images with a plausible ratio may exceed */
    const char *damage;           /* error of stream; NULL: none */
    uint64_t read, used;          /* bytes that stream has given; those up to the last that is not 0 */
    uint64_t next;                /* position of the next header */
    struct sgrad__draft *draft;
    char *key; /* of the current sample, or of members that are no sample; NULL: none */
    struct sgrad__shard_sample sample;
    bool has_image, has_array, has_class; /* the current sample has an image, an array instead, a label in .cls */
    char *dotted;                        /* path of an image that is no sample because of its dots; NULL: none */
    char *json, *json_where;             /* content of its .json, with its place for messages; NULL: none */
    size_t json_size;
};

/* Logs that MEMBER, whose header is at byte AT, is invalid for a REASON. */
static int refuse(const struct scan *scan, const char *member, int64_t at, const char *reason) {
    return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: %s at byte %lld: %s", scan->shard, member, (long long)at, reason);
}

static bool is_bomb(const struct scan *scan) {
    return scan->stream && scan->read > scan->most && scan->read / BOMB_RATIO > scan->file_size;
}

/* Logs that the decompression has failed. */
static int refuse_stream(const struct scan *scan) {
    if (is_bomb(scan))
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tar: %s: has more than %llu MiB and more than %d times its size after decompression, which no "
                               "shard of images has; decompress it yourself if you trust it",
                               scan->shard, (unsigned long long)(scan->most >> 20), BOMB_RATIO);
    const bool window = strstr(scan->damage, "too much memory");
    return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: cannot be decompressed: %s; %s", scan->shard, scan->damage,
                           window ? "compress it without zstd --long" : "the file is incomplete or damaged: copy it again");
}

/* Counts a member that is not part of a sample. KIND NULL: by the extension of its NAME. Names of a hostile archive have no more
 * than KINDS kinds. */
static void note(struct scan *scan, const char *name, const char *kind) {
    enum { KINDS = 64 };
    struct sgrad_walk *others = &scan->draft->others;
    if (others->kinds >= KINDS) kind = "unlisted";
    if (kind)
        sgrad_walk_note(others, kind);
    else
        sgrad__walk_note_name(others, name);
}

/* ---- samples ------------------------------------------------------------------------------------------------------- */

/* Adds the current sample, unless its members are neither images nor labels. */
static int end_sample(struct scan *scan) {
    struct sgrad__draft *draft = scan->draft;
    const bool has_label = scan->has_class || scan->json, has_input = scan->has_image || scan->has_array;
    if (!has_input && !has_label) return 0;
    if (scan->has_array && !has_label && draft->samples && !draft->arrays) return note(scan, "", ".npy"), 0;
    if (!has_input)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tar: %s: %s at byte %llu: the sample has a label, but no image or .npy array; the members of a "
                               "sample must have the same name up to the first dot, and follow each other",
                               scan->shard, scan->key, (unsigned long long)scan->sample.at);
    if (draft->samples && draft->arrays != scan->has_array)
        return refuse(scan, draft->text + scan->sample.name, (int64_t)scan->sample.at,
                      scan->has_array ? "the input is an array, but earlier samples have images; write them to two data sets"
                                      : "the input is an image, but earlier samples have arrays; write them to two data sets");
    draft->arrays = scan->has_array;
    if (!scan->has_class) scan->sample.label = SGRAD__NO_LABEL;
    if (!scan->has_class && scan->json)
        SGRAD_TRY(sgrad__label_parse(scan->json_where, ".json", scan->json, scan->json_size, draft, &scan->sample.label));
    if (scan->has_class && scan->json) note(scan, "", ".json");
    draft->sample = sgrad_array_grow(draft->sample, draft->samples, sizeof *draft->sample);
    draft->sample[draft->samples++] = scan->sample;
    return 0;
}

static void drop_json(struct scan *scan) {
    free(scan->json);
    free(scan->json_where);
    scan->json = scan->json_where = NULL;
}

static int begin_sample(struct scan *scan, const char *path, size_t key) {
    SGRAD_TRY(end_sample(scan));
    free(scan->key);
    scan->key = sgrad_format("%.*s", (int)key, path);
    scan->sample = (struct sgrad__shard_sample){ 0 };
    scan->has_image = scan->has_array = scan->has_class = false;
    drop_json(scan);
    return 0;
}

/* Takes an image, or an array if the sample has no image. */
static int take_input(struct scan *scan, const char *path, size_t key, int64_t header, int64_t size, bool array) {
    struct sgrad__draft *draft = scan->draft;
    const uint64_t at = (uint64_t)archive_filter_bytes(scan->archive, 0);
    if (array && scan->has_image) return note(scan, "", ".npy"), 0;
    if (array && scan->has_array) return refuse(scan, path, header, "the sample has two arrays");
    if (scan->has_image) return refuse(scan, path, header, "the sample has two images");
    if (scan->has_array) note(scan, "", ".npy");
    if ((uint64_t)size > SGRAD__IMAGE_LIMIT)
        return refuse(scan, path, header, array ? "the array has more than 256 MiB" : "the image has more than 256 MiB");
    if (!draft->compressed && (at > scan->file_size || (uint64_t)size > scan->file_size - at))
        return refuse(scan, path, header, "the shard ends within this member; it is incomplete");
    if (draft->text_bytes + strlen(path) >= UINT32_MAX)
        return refuse(scan, path, header, "the names up to this member have more than 4 GiB; " SGRAD__SMALLER_SHARD);
    scan->sample.at = at;
    scan->sample.size = (uint32_t)size;
    scan->sample.name = sgrad__draft_text(draft, path, strlen(path));
    scan->sample.key = (uint32_t)key;
    scan->has_image = !array;
    scan->has_array = array;
    return 0;
}

/* Reads the content of the current member, of SIZE bytes, with a 0 after it. The caller must free *CONTENT. */
static int read_content(struct scan *scan, const char *path, int64_t header, int64_t size, char **content) {
    if ((uint64_t)size > LABEL_LIMIT) return refuse(scan, path, header, "the label has more than 1 MiB");
    char *data = sgrad_xcalloc((size_t)size + 1, 1);
    const ssize_t got = archive_read_data(scan->archive, data, (size_t)size);
    if (got == size) return *content = data, 0;
    free(data);
    if (scan->damage) return refuse_stream(scan);
    return refuse(scan, path, header, got < 0 ? archive_error_string(scan->archive) : "the shard ends within this member");
}

/* A label in .cls precedes one in .json, which may have other metadata. */
static int take_label(struct scan *scan, const char *path, const char *ending, int64_t header, int64_t size) {
    const bool is_class = !strcmp(ending, ".cls");
    char *content = NULL, *where;
    if (is_class ? scan->has_class : scan->json != NULL) return refuse(scan, path, header, "the sample has two such labels");
    if (!scan->has_image && !scan->has_array) scan->sample.at = (uint64_t)header;
    SGRAD_TRY(read_content(scan, path, header, size, &content));
    where = sgrad_format("tar: %s: %s at byte %lld", scan->shard, path, (long long)header);
    if (!is_class) {
        scan->json = content;
        scan->json_where = where;
        scan->json_size = (size_t)size;
        return 0;
    }
    const int error = sgrad__label_parse(where, ending, content, (size_t)size, scan->draft, &scan->sample.label);
    scan->has_class = !error;
    free(where);
    free(content);
    return error;
}

/* ---- members ------------------------------------------------------------------------------------------------------- */

/* Returns true if a folder or the name of PATH begins with a dot, as of files that systems add. */
static bool is_hidden(const char *path) {
    for (;; path++) {
        if (*path == '.' && path[1] != '/') return true;
        if (!(path = strchr(path, '/'))) return false;
    }
}

/* Adds a regular file. */
static int take_file(struct scan *scan, const char *path, int64_t header, int64_t size) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strchr(name, '.');
    if (is_hidden(path)) return note(scan, name, "hidden"), 0;
    if (!dot || dot == name) return note(scan, name, NULL), 0;
    char ending[8];
    snprintf(ending, sizeof ending, "%s", dot);
    for (char *c = ending; *c; c++) *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 'a' - 'A' : *c);
    const size_t key = (size_t)(dot - path);
    const bool same = scan->key && strlen(scan->key) == key && !strncmp(scan->key, path, key);
    if (!same) SGRAD_TRY(begin_sample(scan, path, key));
    if (!strchr(dot + 1, '.') && sgrad__image_is_named(dot)) return take_input(scan, path, key, header, size, false);
    if (!strcmp(ending, ".npy")) return take_input(scan, path, key, header, size, true);
    if (!strcmp(ending, ".cls") || !strcmp(ending, ".json")) return take_label(scan, path, ending, header, size);
    if (!scan->dotted && sgrad__image_is_named(name)) scan->dotted = sgrad_format("%s", path);
    note(scan, name, NULL);
    return 0;
}

static int take_member(struct scan *scan, struct archive_entry *entry) {
    const int64_t header = archive_read_header_position(scan->archive), size = archive_entry_size(entry);
    scan->next = (uint64_t)archive_filter_bytes(scan->archive, 0) + (((uint64_t)size + 511) & ~(uint64_t)511);
    const char *path = archive_entry_pathname(entry);
    if (!path) path = archive_entry_pathname_utf8(entry); /* the locale has no such characters */
    if (!path) return refuse(scan, "a member", header, "its name cannot be read");
    if (sgrad_path_leads_out(path)) return refuse(scan, path, header, "its path leads out of the archive");
    while (!strncmp(path, "./", 2)) path += 2 + strspn(path + 2, "/");
    const bool link = archive_entry_hardlink(entry) || archive_entry_symlink(entry);
    if (link) return refuse(scan, path, header, "is a link; write the archive with tar --dereference --hard-dereference");
    if (archive_entry_filetype(entry) == AE_IFDIR) return 0;
    if (archive_entry_filetype(entry) != AE_IFREG) return refuse(scan, path, header, "is neither a file nor a folder");
    if (archive_entry_sparse_count(entry)) return refuse(scan, path, header, "is sparse; write the archive without --sparse");
    if (!archive_entry_size_is_set(entry) || size < 0) return refuse(scan, path, header, "has no valid size");
    return take_file(scan, path, header, size);
}

/* ---- archives ------------------------------------------------------------------------------------------------------ */

/* Logs an error of libarchive. */
static int refuse_archive(const struct scan *scan) {
    const char *why = archive_error_string(scan->archive);
    const int error = archive_errno(scan->archive) == ENOMEM ? SGRAD_ENOMEM : SGRAD_EFORMAT;
    return sgrad_log_error(error, "tar: %s: byte %llu, the %s%s: %s; copy or write the shard again", scan->shard,
                           (unsigned long long)scan->next, scan->key ? "header after " : "first header",
                           scan->key ? scan->key : "", why ? why : "the archive is damaged");
}

/* Logs that the file cannot be opened, with its kind if that is known. */
static int refuse_file(const struct scan *scan) {
    unsigned char begin[512];
    const ssize_t known = scan->file < 0 ? 0 : pread(scan->file, begin, sizeof begin, 0);
    const struct sgrad_contents *is = sgrad_contents(begin, known > 0 ? (size_t)known : 0);
    const char *why = archive_error_string(scan->archive);
    if (scan->damage) return refuse_stream(scan);
    if (scan->stream)
        return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: the content of the compressed file is not a tar archive", scan->shard);
    if (!is && why && strstr(why, "Unrecognized"))
        return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: is not a tar archive, plain or compressed by gzip or Zstandard",
                               scan->shard);
    if (!is || !strcmp(is->name, "a tar archive")) return refuse_archive(scan);
    if (!strcmp(is->name, "a gzip file") || !strcmp(is->name, "a Zstandard file"))
        return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: is %s that ends within its header; it is incomplete: copy it again",
                               scan->shard, is->name);
    return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: is %s, not a tar archive%s%s", scan->shard, is->name, is->way_out ? "; " : "",
                           is->way_out ? is->way_out : "");
}

/* Returns true if a header was read. Of libarchive's warnings, only that of a name that the locale cannot express is accepted:
 * after others, a header is read in part. */
static bool is_read(const struct scan *scan, int result) {
    const char *why = result == ARCHIVE_WARN ? archive_error_string(scan->archive) : NULL;
    return result == ARCHIVE_OK || (why && strstr(why, "can't be converted"));
}

/* Counts SIZE bytes at DATA. memcmp finds a block of zeros ten times as fast as the loop. */
static void count_bytes(struct scan *scan, const unsigned char *data, size_t size) {
    size_t used = size && !*data && !memcmp(data, data + 1, size - 1) ? 0 : size;
    while (used && !data[used - 1]) used--;
    if (used) scan->used = scan->read + used;
    scan->read += size;
}

/* Gives the reader of the archive the next decompressed bytes. A callback of libarchive. */
static la_ssize_t read_stream(struct archive *archive, void *of, const void **block) {
    struct scan *scan = of;
    const ssize_t got = sgrad__stream_read(scan->stream, scan->block, BLOCK);
    *block = scan->block;
    if (got >= 0) count_bytes(scan, *block, (size_t)got);
    if (got >= 0 && !is_bomb(scan)) return got;
    scan->damage = got < 0 ? sgrad__stream_damage(scan->stream) : "too many bytes";
    archive_set_error(archive, EIO, "%s", scan->damage);
    return -1;
}

/* Reads the rest of a plain archive, from its end mark at byte AT. */
static int read_rest(struct scan *scan, uint64_t at) {
    unsigned char block[4096];
    scan->read = at;
    while (scan->read < scan->file_size) {
        const size_t left = scan->file_size - scan->read, size = left < sizeof block ? left : sizeof block;
        if (scan->file < 0) memcpy(block, (const char *)scan->data + scan->read, size);
        else if (pread(scan->file, block, size, (off_t)scan->read) != (ssize_t)size)
            return sgrad_log_error(SGRAD_EIO, "tar: %s: cannot be read at byte %llu", scan->shard,
                                   (unsigned long long)scan->read);
        count_bytes(scan, block, size);
    }
    return 0;
}

/* Checks that the archive has an end mark, after which there are only zeros. Sets its size. */
static int check_end(struct scan *scan) {
    enum { MARK = 1024 };
    const uint64_t at = (uint64_t)archive_read_header_position(scan->archive);
    if (!scan->stream) SGRAD_TRY(read_rest(scan, at));
    for (const void *block; scan->stream && read_stream(scan->archive, scan, &block) > 0;) continue;
    if (scan->damage) return refuse_stream(scan);
    if (scan->read < at + MARK)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tar: %s: the archive is incomplete: it has no end mark, two blocks of zeros, at byte %llu; copy "
                               "or write it again",
                               scan->shard, (unsigned long long)at);
    scan->draft->bytes = scan->read;
    if (scan->used <= at) return 0;
    return sgrad_log_error(SGRAD_EFORMAT,
                           "tar: %s: other data follow the end of the archive at byte %llu; if archives were joined by cat, "
                           "join them by tar --concatenate, or give each one as a shard",
                           scan->shard, (unsigned long long)at);
}

/* Reads all headers. */
static int read_headers(struct scan *scan) {
    struct archive_entry *entry;
    int result, error = 0;
    while (!error && (result = archive_read_next_header(scan->archive, &entry)) != ARCHIVE_EOF) {
        if (scan->damage) return refuse_stream(scan);
        if (!is_read(scan, result)) return refuse_archive(scan);
        error = take_member(scan, entry);
    }
    if (!error) error = end_sample(scan);
    return error ? error : check_end(scan);
}

/* Opens the file by READER. Returns false if this fails. */
static bool open_file(const struct scan *scan, struct archive *reader) {
    if (scan->file < 0) return archive_read_open_memory(reader, scan->data, scan->file_size) == ARCHIVE_OK;
    return lseek(scan->file, 0, SEEK_SET) == 0 && archive_read_open_fd(reader, scan->file, BLOCK) == ARCHIVE_OK;
}

/* Opens the reader of the archive. */
static int open_archive(struct scan *scan) {
    SGRAD_TRY(sgrad__stream_open(scan->shard, scan->file, scan->data, scan->file_size, &scan->stream));
    scan->draft->compressed = scan->stream != NULL;
    if (scan->stream) scan->block = sgrad_xcalloc(BLOCK, 1);
    scan->archive = archive_read_new();
    if (!scan->archive) return sgrad_log_error(SGRAD_ENOMEM, "tar: %s: no memory", scan->shard);
    archive_read_support_format_tar(scan->archive);
    const bool opened = scan->stream ? archive_read_open(scan->archive, scan, NULL, read_stream, NULL) == ARCHIVE_OK
                                     : open_file(scan, scan->archive);
    return opened ? 0 : refuse_file(scan);
}

/* Logs that there is no sample. */
static int refuse_empty(const struct scan *scan) {
    const char *slash = scan->dotted ? strrchr(scan->dotted, '/') : NULL, *name = slash ? slash + 1 : scan->dotted;
    if (name)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tar: %s: has no samples: the name of a sample ends at the first dot: '%s' is '%.*s'; write "
                               "images with names of one dot",
                               scan->shard, name, (int)strcspn(name, "."), name);
    return sgrad_log_error(SGRAD_EFORMAT,
                           "tar: %s: has no samples: images or arrays (.npy) with the label in a member of the same name, such "
                           "as 0001.jpg and 0001.cls",
                           scan->shard);
}

int sgrad__shard_scan(const char *name, int file, const void *data, size_t size, uint64_t limit, struct sgrad__draft *draft) {
    struct scan scan = { .shard = name, .file = file, .data = data, .file_size = size, .draft = draft };
    scan.most = limit > BOMB_MOST ? BOMB_MOST : limit < BOMB_LEAST ? BOMB_LEAST : limit;
    if (!size) return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: the file is empty", name);
    int error = open_archive(&scan);
    if (!error) error = read_headers(&scan);
    free(scan.key);
    drop_json(&scan);
    if (scan.archive) archive_read_free(scan.archive);
    sgrad__stream_close(scan.stream);
    free(scan.block);
    if (!error && !draft->samples) error = refuse_empty(&scan);
    free(scan.dotted);
    return error;
}
#else
int sgrad__shard_scan(const char *name, int file, const void *data, size_t size, uint64_t limit, struct sgrad__draft *draft) {
    (void)file, (void)data, (void)size, (void)limit, (void)draft;
    return sgrad_library_missing("libarchive", "read %s, a tar archive", name);
}
#endif
