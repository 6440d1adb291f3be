/* zip.c: reads a member of a zip archive in memory, as numpy.savez writes it, with libzip. The sizes in the archive's directory
 * are checked for plausibility before memory is allocated.
 *
 * Limits: no encryption; only the methods of numpy.savez (stored) and savez_compressed (deflated). */
#include "config.h"
#include "datasets/formats.h"
#include "runtime/libraries.h"

#include <stdlib.h>
#ifdef SGRAD_HAVE_LIBZIP
#include <zip.h>

#define DEFLATE_RATIO 1032 /* maximum expansion by deflate (zlib.net/zlib_tech.html) */

struct member {
    const char *archive, *name;
    zip_t *zip;
    zip_stat_t is;
};

static int refused(const char *archive, zip_error_t *why) {
    const int error = sgrad_log_error(zip_error_code_zip(why) == ZIP_ER_MEMORY ? SGRAD_ENOMEM : SGRAD_EFORMAT, "zip: %s: %s",
                                      archive, zip_error_strerror(why));
    zip_error_fini(why);
    return error;
}

/* On success, libzip owns the source and the error; on failure, they are freed here. */
static int open_archive(struct member *member, const void *data, size_t size) {
    zip_error_t why;
    zip_error_init(&why);
    zip_source_t *source = zip_source_buffer_create(data, size, 0, &why);
    if (!source) return refused(member->archive, &why);
    member->zip = zip_open_from_source(source, ZIP_RDONLY, &why);
    if (member->zip) return 0;
    zip_source_free(source);
    return refused(member->archive, &why);
}

static int find_member(struct member *member, size_t archive_size) {
    const zip_uint64_t wanted = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    if (zip_stat(member->zip, member->name, ZIP_FL_ENC_RAW, &member->is) || (member->is.valid & wanted) != wanted)
        return sgrad_log_error(SGRAD_EFORMAT, "zip: %s: has no %s", member->archive, member->name);
    const bool stored = member->is.comp_method == ZIP_CM_STORE, encrypted = member->is.encryption_method != ZIP_EM_NONE;
    if (encrypted || (!stored && member->is.comp_method != ZIP_CM_DEFLATE))
        return sgrad_log_error(SGRAD_EFORMAT, "zip: %s: %s is %s, but must be stored or deflated", member->archive, member->name,
                               encrypted ? "encrypted" : "compressed by another method");
    if (member->is.comp_size > archive_size)
        return sgrad_log_error(SGRAD_EFORMAT, "zip: %s: %s ends early", member->archive, member->name);
    if (stored ? member->is.size != member->is.comp_size : member->is.size / DEFLATE_RATIO > member->is.comp_size)
        return sgrad_log_error(SGRAD_EFORMAT, "zip: %s: %s is damaged: the archive's directory states an impossible size",
                               member->archive, member->name);
    return 0;
}

/* Reads the member, and tries to read one more byte: libzip verifies the checksum only at the end of the member. */
static int read_member(const struct member *member, unsigned char *to) {
    zip_file_t *file = zip_fopen_index(member->zip, member->is.index, 0);
    if (!file)
        return sgrad_log_error(SGRAD_EFORMAT, "zip: %s: %s is damaged: %s", member->archive, member->name,
                               zip_error_strerror(zip_get_error(member->zip)));
    zip_uint64_t done = 0;
    zip_int64_t more = 1;
    while (more > 0 && done <= member->is.size) {
        more = zip_fread(file, to + done, member->is.size + 1 - done);
        done += more > 0 ? (zip_uint64_t)more : 0;
    }
    int error = 0;
    if (more < 0)
        error = sgrad_log_error(SGRAD_EFORMAT, "zip: %s: %s is damaged: %s", member->archive, member->name,
                                zip_error_strerror(zip_file_get_error(file)));
    else if (done != member->is.size)
        error = sgrad_log_error(SGRAD_EFORMAT, "zip: %s: %s is damaged: its size differs from that in the archive's directory",
                                member->archive, member->name);
    zip_fclose(file);
    return error;
}

int sgrad__zip_read(const char *name, const void *data, size_t size, const char *member, void **content, size_t *bytes) {
    struct member m = { .archive = name, .name = member };
    unsigned char *to = NULL;
    SGRAD_TRY(open_archive(&m, data, size));
    int error = find_member(&m, size);
    if (!error && !(to = malloc(m.is.size + 1)))
        error = sgrad_log_error(SGRAD_ENOMEM, "zip: %s: no memory for the %llu bytes of %s", name, (unsigned long long)m.is.size,
                                member);
    if (!error) error = read_member(&m, to);
    zip_discard(m.zip);
    if (error) return free(to), error;
    *content = to;
    *bytes = m.is.size;
    return 0;
}

bool sgrad__zip_has(const void *data, size_t size, const char *member) {
    zip_source_t *source = zip_source_buffer_create(data, size, 0, NULL);
    zip_t *zip = source ? zip_open_from_source(source, ZIP_RDONLY, NULL) : NULL;
    const bool has = zip && zip_name_locate(zip, member, ZIP_FL_ENC_RAW) >= 0;
    if (zip) zip_discard(zip);
    else if (source) zip_source_free(source);
    return has;
}
#else
int sgrad__zip_read(const char *name, const void *data, size_t size, const char *member, void **content, size_t *bytes) {
    (void)data, (void)size, (void)member, (void)content, (void)bytes;
    return sgrad_library_missing("libzip", "read %s, a zip archive", name);
}

bool sgrad__zip_has(const void *data, size_t size, const char *member) { return (void)data, (void)size, (void)member, true; }
#endif
