/* hdf5.c: a data set of an HDF5 file: FILE.h5:NAME, or the only one in the file.
 *
 * The library has global state, so a lock serialises all calls. Supported compressors are those of the library.
 *
 * Limits: only one process may write a file. */
#include "config.h"
#include "volumes/formats.h"

#include <errno.h>
#include <jansson.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the end of the file's name: a colon, which the name of the data set follows, or the end of NAME. NULL: NAME is not the
 * name of an HDF5 file. */
static const char *ending_of(const char *name) {
    static const char *const endings[] = { ".h5", ".hdf5", ".hdf" };
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        for (const char *at = name; (at = strcasestr(at, endings[i])); at++) {
            const char *end = at + strlen(endings[i]);
            if (!*end || *end == ':') return end;
        }
    return NULL;
}
static bool is_hdf5(const char *name) { return ending_of(name) != NULL; }

#ifdef SGRAD_HAVE_HDF5
#include <hdf5.h>

struct hdf5 {
    hid_t file, set;
    char *name;         /* of the data set */
    char *part;         /* path of the temporary file that is written; NULL: reading */
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Writes the library's reason for the last failure to TEXT as one line: the innermost error. Errors of a search for a plug-in are
 * skipped, so that the reason is that for which the plug-in is needed. */
enum { REASON = 400 };
static herr_t take(unsigned number, const H5E_error2_t *error, void *text) {
    (void)number;
    if (error->desc && strncmp(error->func_name, "H5PL", 4)) snprintf(text, REASON, "%s", error->desc);
    return 0;
}
static const char *why(char text[REASON]) {
    snprintf(text, REASON, "HDF5 gives no reason");
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, take, text);
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r') *c = ' ';
    return text;
}

/* Searches the names in the file for data sets, and for the first link that leads nowhere. */
struct search {
    bool links;         /* follow soft and external links, which may repeat a data set */
    char *found, *list, *broken;
    int count;
    char reason[REASON];
};
static herr_t look(hid_t group, const char *name, const H5L_info_t *info, void *arg) {
    enum { LISTED = 8 };
    struct search *search = arg;
    if (info->type != H5L_TYPE_HARD && !search->links) return 0;
    const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0 && !search->broken) {
        why(search->reason);
        search->broken = sgrad_format("%s", name);
    }
    if (object >= 0 && H5Iget_type(object) == H5I_DATASET) {
        if (search->count == 0) search->found = sgrad_format("%s", name);
        if (search->count <= LISTED) {
            const char *before = search->list ? search->list : "";
            char *list = sgrad_format("%s%s%s", before, *before ? ", " : "", search->count == LISTED ? "…" : name);
            free(search->list);
            search->list = list;
        }
        search->count++;
    }
    if (object >= 0) H5Oclose(object);
    return 0;
}
/* Searches FILE. Links are followed only if there is nothing else. The caller must call end_search. */
static void search_in(hid_t file, struct search *search) {
    *search = (struct search){ 0 };
    H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, look, search);
    search->links = !search->count && !search->broken;
    if (search->links) H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, look, search);
}
static void end_search(struct search *search) {
    free(search->found);
    free(search->list);
    free(search->broken);
}

/* Finds the name of the data set, if it was not specified. SGRAD_EFORMAT: the file has no data set, or more than one. */
static int find_set(const struct sgrad_volume *volume, struct hdf5 *hdf5) {
    struct search search;
    int error = 0;
    if (hdf5->name) return 0;
    search_in(hdf5->file, &search);
    if (search.count > 1)
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: has %d data sets; give one of them, %s:NAME: %s", volume->path, search.count,
                                volume->path, search.list);
    else if (!search.count && search.broken)
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: has no data set: its link %s is broken: %s", volume->path, search.broken,
                                search.reason);
    else if (!search.count) error = sgrad_log_error(SGRAD_EFORMAT, "%s: has no data set", volume->path);
    else hdf5->name = sgrad_format("%s", search.found);
    end_search(&search);
    return error;
}

/* Logs why the data set h->name cannot be opened, and which data sets exist. */
static int no_set(const struct sgrad_volume *volume, const struct hdf5 *hdf5) {
    char reason[REASON];
    struct search search;
    why(reason);
    search_in(hdf5->file, &search);
    int error = sgrad_log_error(SGRAD_EFORMAT, "%s: data set %s cannot be opened: %s; the file has %s", volume->path, hdf5->name,
                                reason, search.list ? search.list : "no data set");
    end_search(&search);
    return error;
}

/* Logs why the file cannot be opened. */
static int no_file(const struct sgrad_volume *volume) {
    char reason[REASON];
    why(reason);
    const char *out = strstr(reason, "signature not found") ? ": it is not an HDF5 file" : "";
    if (strstr(reason, "lock file"))
        out = strstr(reason, strerror(EAGAIN)) ? ": another process has it open for writing; read it when it is closed"
                                               : "; set HDF5_USE_FILE_LOCKING=FALSE to read it without a lock";
    return sgrad_log_error(SGRAD_EFORMAT, "%s: HDF5 cannot open it: %s%s", volume->path, reason, out);
}

static hid_t native_of(enum sgrad_voxel voxel) {
    const hid_t type[SGRAD_VOXELS] = { H5T_NATIVE_UINT8, H5T_NATIVE_UINT16, H5T_NATIVE_UINT32, H5T_NATIVE_UINT64,
                                       H5T_NATIVE_INT8,  H5T_NATIVE_INT16,  H5T_NATIVE_INT32,  H5T_NATIVE_INT64,
                                       H5T_NATIVE_FLOAT, H5T_NATIVE_DOUBLE };
    return type[voxel];
}

static int find_voxel(struct sgrad_volume *volume, const struct hdf5 *hdf5) {
    const hid_t type = H5Dget_type(hdf5->set);
    const H5T_class_t class = H5Tget_class(type);
    const size_t size = H5Tget_size(type);
    const bool is_signed = class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    H5Tclose(type);
    for (enum sgrad_voxel voxel = 0; voxel < SGRAD_VOXELS; voxel++) {
        const bool real = voxel >= SGRAD_VOXEL_F32, sign = voxel >= SGRAD_VOXEL_I8 && !real;
        if (sgrad_voxel_size(voxel) == size && (real ? class == H5T_FLOAT : class == H5T_INTEGER && sign == is_signed))
            return volume->voxel = voxel, 0;
    }
    return sgrad_log_error(SGRAD_EFORMAT, "%s:%s: voxels must be integers or real numbers of 8 to 64 bits", volume->path,
                           hdf5->name);
}

static int find_shape(struct sgrad_volume *volume, const struct hdf5 *hdf5) {
    hsize_t dims[H5S_MAX_RANK], chunks[H5S_MAX_RANK];
    int64_t dim[SGRAD_VOLUME_RANK], chunk[SGRAD_VOLUME_RANK];
    const hid_t space = H5Dget_space(hdf5->set), how = H5Dget_create_plist(hdf5->set);
    const int rank = H5Sget_simple_extent_dims(space, dims, NULL);
    const bool chunked = H5Pget_layout(how) == H5D_CHUNKED && H5Pget_chunk(how, H5S_MAX_RANK, chunks) == rank;
    for (int d = 0; d < rank && d < SGRAD_VOLUME_RANK; d++) {
        dim[d] = (int64_t)dims[d];
        chunk[d] = d < rank - 2 ? 1 : dim[d];
        if (chunked) chunk[d] = (int64_t)chunks[d];
    }
    H5Sclose(space);
    H5Pclose(how);
    return sgrad__volume_shape(volume, rank, dim, chunk);
}

/* Reads attribute NAME, an array of COUNT strings, to TEXT. The caller must free the strings with H5free_memory. Returns false if
 * there is no such attribute. */
static bool read_texts(hid_t set, const char *name, int count, char **text) {
    if (H5Aexists(set, name) <= 0) return false;
    const hid_t attribute = H5Aopen(set, name, H5P_DEFAULT), is = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5Tget_cset(is));
    const bool read = H5Tis_variable_str(is) > 0 && H5Sget_simple_extent_npoints(space) == count &&
                      H5Aread(attribute, type, text) >= 0;
    H5Tclose(type);
    H5Tclose(is);
    H5Sclose(space);
    H5Aclose(attribute);
    return read;
}

/* Checks the names of axes in HDF5's own dimension labels, or in vigra's axistags (ilastik). */
static int check_axes(const struct sgrad_volume *volume, const struct hdf5 *hdf5) {
    char *label[SGRAD_VOLUME_RANK] = { NULL }, *tags = NULL;
    const int64_t *dim = volume->dim + SGRAD_VOLUME_RANK - volume->rank;
    int error = 0;
    if (read_texts(hdf5->set, "DIMENSION_LABELS", volume->rank, label)) {
        error = sgrad__axes_check(volume->path, volume->rank, dim, (const char *const *)label);
        for (int d = 0; d < volume->rank; d++) H5free_memory(label[d]);
    }
    if (!error && read_texts(hdf5->set, "axistags", 1, &tags)) {
        json_t *json = tags ? json_loads(tags, 0, NULL) : NULL;
        error = sgrad__axes_check_json(volume->path, volume->rank, dim, json_object_get(json, "axes"));
        json_decref(json);
        H5free_memory(tags);
    }
    return error;
}

/* Returns true if FOLDER contains the file NAME; of an absolute path, only the last component is used. */
static bool is_in(const char *folder, const char *name) {
    char *path = sgrad_format("%s/%s", folder, *name == '/' ? strrchr(name, '/') + 1 : name);
    const bool there = !access(path, R_OK);
    free(path);
    return there;
}

/* Returns true if a folder of HDF5_VDS_PREFIX contains the file NAME. The variable is a list "A:B", or "${ORIGIN}/A", where
 * FOLDER, which contains the HDF5 file, replaces ${ORIGIN}. */
static bool is_prefixed(const char *folder, const char *name) {
    static const char origin[] = "${ORIGIN}";
    const char *list = getenv("HDF5_VDS_PREFIX");
    if (!list) return false;
    const bool within = !strncmp(list, origin, sizeof origin - 1);
    char *all = sgrad_format("%s%s", within ? folder : "", within ? list + sizeof origin - 1 : list), *rest = all;
    bool there = within && is_in(all, name);
    for (char *one; !there && (one = strsep(&rest, ":"));) there = *one && is_in(one, name);
    free(all);
    return there;
}

/* Returns true if the library finds NAME, a source of the file PATH. It searches the folder of PATH, also that of the link's
 * target if PATH is a link, the current folder and the prefix. */
static bool is_found(const char *path, const char *name) {
    char *own = sgrad_format("%s", path), *target = realpath(path, NULL);
    const char *folder = dirname(own);
    const bool there = !access(name, R_OK) || is_in(".", name) || is_in(folder, name) || is_prefixed(folder, name) ||
                       (target && is_in(dirname(target), name));
    free(own);
    free(target);
    return there;
}

/* Checks that the files of a virtual data set exist: for a missing file, the library would return fill values. SGRAD_EIO. */
static int check_sources(const struct sgrad_volume *volume, const struct hdf5 *hdf5) {
    enum { LONGEST = 4096 };
    const hid_t how = H5Dget_create_plist(hdf5->set);
    char name[LONGEST];
    size_t sources = 0;
    int error = 0;
    if (H5Pget_layout(how) == H5D_VIRTUAL) H5Pget_virtual_count(how, &sources);
    for (size_t i = 0; i < sources && !error; i++) {
        if (H5Pget_virtual_filename(how, i, name, LONGEST) < 0 || strchr(name, '%') || !strcmp(name, ".")) continue;
        if (!is_found(volume->path, name))
            error = sgrad_log_error(SGRAD_EIO, "%s:%s: refers to %s, which does not exist", volume->path, hdf5->name, name);
    }
    H5Pclose(how);
    return error;
}

static int open_set(struct sgrad_volume *volume) {
    const char *end = ending_of(volume->path);
    struct hdf5 *h = volume->state = sgrad_xcalloc(1, sizeof *h);
    h->file = h->set = -1;
    if (*end) h->name = sgrad_format("%s", end + 1);
    volume->path[end - volume->path] = 0;
    if (access(volume->path, R_OK)) return sgrad_log_error(SGRAD_EIO, "%s: %s", volume->path, strerror(errno));
    if ((h->file = H5Fopen(volume->path, H5F_ACC_RDONLY, H5P_DEFAULT)) < 0) return no_file(volume);
    SGRAD_TRY(find_set(volume, h));
    if ((h->set = H5Dopen2(h->file, h->name, H5P_DEFAULT)) < 0) return no_set(volume, h);
    SGRAD_TRY(find_voxel(volume, h));
    SGRAD_TRY(find_shape(volume, h));
    SGRAD_TRY(check_sources(volume, h));
    return check_axes(volume, h);
}

static int open_hdf5(struct sgrad_volume *volume) {
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    int error = open_set(volume);
    pthread_mutex_unlock(&lock);
    return error;
}

/* Chunks are compressed with gzip, which every reader supports. */
static int create_set(struct sgrad_volume *volume) {
    const char *end = ending_of(volume->path);
    struct hdf5 *h = volume->state = sgrad_xcalloc(1, sizeof *h);
    hsize_t dim[SGRAD_VOLUME_RANK], chunk[SGRAD_VOLUME_RANK];
    h->file = h->set = -1;
    h->name = sgrad_format("%s", *end ? end + 1 : "volume");
    volume->path[end - volume->path] = 0;
    if (!access(volume->path, F_OK))
        return sgrad_log_error(SGRAD_EIO, "%s: already exists; give another name, or remove it", volume->path);
    h->part = sgrad__part_of(volume->path);
    if ((h->file = H5Fcreate(h->part, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) < 0)
        return sgrad_log_error(SGRAD_EIO, "%s: HDF5 cannot create it; check that its folder exists and is writable",
                               volume->path);
    for (int d = 0; d < SGRAD_VOLUME_RANK; d++)
        dim[d] = (hsize_t)volume->dim[d],
        chunk[d] = (hsize_t)(volume->chunk[d] < volume->dim[d] ? volume->chunk[d] : volume->dim[d]);
    const hid_t space = H5Screate_simple(SGRAD_VOLUME_RANK, dim, NULL), how = H5Pcreate(H5P_DATASET_CREATE),
                links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_chunk(how, SGRAD_VOLUME_RANK, chunk);
    H5Pset_deflate(how, 1);
    H5Pset_create_intermediate_group(links, 1);
    h->set = H5Dcreate2(h->file, h->name, native_of(volume->voxel), space, links, how, H5P_DEFAULT);
    H5Sclose(space);
    H5Pclose(how);
    H5Pclose(links);
    return h->set < 0 ? sgrad_log_error(SGRAD_EIO, "%s: HDF5 cannot create data set %s in it", volume->path, h->name) : 0;
}

static int create_hdf5(struct sgrad_volume *volume) {
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    int error = create_set(volume);
    pthread_mutex_unlock(&lock);
    return error;
}

/* Reads BOX to TO, or, if TO is NULL, writes it from FROM. */
static int pass(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to, const void *from) {
    const struct hdf5 *h = volume->state;
    hsize_t start[SGRAD_VOLUME_RANK], count[SGRAD_VOLUME_RANK];
    const int first = SGRAD_VOLUME_RANK - volume->rank;
    char reason[REASON];
    for (int d = 0; d < volume->rank; d++) start[d] = (hsize_t)box->from[first + d], count[d] = (hsize_t)box->size[first + d];
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);      /* the setting is per thread */
    const hid_t file = H5Dget_space(h->set), memory = H5Screate_simple(volume->rank, count, NULL);
    herr_t status = H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, count, NULL);
    if (status >= 0 && to) status = H5Dread(h->set, native_of(volume->voxel), memory, file, H5P_DEFAULT, to);
    else if (status >= 0) status = H5Dwrite(h->set, native_of(volume->voxel), memory, file, H5P_DEFAULT, from);
    if (status < 0) why(reason);
    H5Sclose(file);
    H5Sclose(memory);
    pthread_mutex_unlock(&lock);
    if (status >= 0) return 0;
    return sgrad_log_error(to ? SGRAD_EFORMAT : SGRAD_EIO, "%s:%s: cannot be %s: %s", volume->path, h->name,
                           to ? "read" : "written", reason);
}

static int read_hdf5(const struct sgrad_volume *volume, const struct sgrad_box *box, void *to) {
    return pass(volume, box, to, NULL);
}
static int write_hdf5(const struct sgrad_volume *volume, const struct sgrad_box *box, const void *from) {
    return pass(volume, box, NULL, from);
}

/* Closes the file. The lock must be held. Returns false if data in memory cannot be written. */
static bool leave(struct hdf5 *hdf5) {
    const bool set = hdf5->set < 0 || H5Dclose(hdf5->set) >= 0, file = hdf5->file < 0 || H5Fclose(hdf5->file) >= 0;
    hdf5->set = hdf5->file = -1;
    return set && file;
}

static int finish_hdf5(struct sgrad_volume *volume) {
    struct hdf5 *h = volume->state;
    pthread_mutex_lock(&lock);
    const bool written = leave(h);
    pthread_mutex_unlock(&lock);
    if (!written) return sgrad_log_error(SGRAD_EIO, "%s: HDF5 cannot write it; check that the disk is not full", volume->path);
    SGRAD_TRY(sgrad__part_place(h->part, volume->path));
    free(h->part);
    h->part = NULL;
    return 0;
}

static void close_hdf5(struct sgrad_volume *volume) {
    struct hdf5 *h = volume->state;
    pthread_mutex_lock(&lock);
    leave(h);
    pthread_mutex_unlock(&lock);
    if (h->part) unlink(h->part);
    free(h->part);
    free(h->name);
    free(h);
}
#endif

const struct sgrad_volume_format sgrad__hdf5_format = {
    .name = "hdf5",
    .summary = "data set of an HDF5 file, FILE.h5[:NAME]",
    .library = "hdf5",
    .is = is_hdf5,
#ifdef SGRAD_HAVE_HDF5
    .open = open_hdf5,
    .create = create_hdf5,
    .read = read_hdf5,
    .write = write_hdf5,
    .finish = finish_hdf5,
    .close = close_hdf5,
#endif
};
