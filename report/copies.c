/* copies.c: sums the copies between memory nodes, over PCIe: in total, and by tensor. Node 0 is main memory, the others belong to
 * devices. The copies of a tensor for several micro-batches ("images#0", "images#1") are one entry. */
#include "report/trace.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum { TO_DEVICES, TO_HOST, BETWEEN, WAYS, SHOWN = 10 };

struct sum {
    const char *name;                   /* its first LENGTH characters */
    int length, copies;
    double megabytes[WAYS];
};

static double all(const struct sum *sum) {
    return sum->megabytes[TO_DEVICES] + sum->megabytes[TO_HOST] + sum->megabytes[BETWEEN];
}

static int by_megabytes(const void *one, const void *other) {
    const double a = all(one), b = all(other);
    return (a < b) - (a > b);
}

static void add(struct sum *sum, const struct sgrad__timeline_copy *copy) {
    int direction = BETWEEN;
    if (!copy->from) direction = TO_DEVICES;
    else if (!copy->to) direction = TO_HOST;
    sum->copies++;
    sum->megabytes[direction] += 1e-6 * copy->bytes;
}

static json_t *sum_as_json(const struct sum *sum) {
    return json_pack("{s:i, s:f, s:f, s:f}", "copies", sum->copies, "to_devices_mb", sum->megabytes[TO_DEVICES], "to_host_mb",
                     sum->megabytes[TO_HOST], "between_devices_mb", sum->megabytes[BETWEEN]);
}

json_t *sgrad__copies_as_json(const struct sgrad__timeline *timeline) {
    struct sum total = { 0 }, *sums = NULL;
    struct sgrad__numbers names = { 0 };
    json_t *tensors = json_array();
    for (int i = 0; i < timeline->copies; i++) {
        const struct sgrad__timeline_copy *copy = &timeline->copy[i];
        if (copy->to < 0) continue;
        const int length = (int)strcspn(copy->name, "#"), known = names.count;
        const int n = sgrad__number(&names, copy->name, (size_t)length);
        if (n == known) {
            sums = sgrad_array_grow(sums, n, sizeof *sums);
            sums[n] = (struct sum){ .name = copy->name, .length = length };
        }
        add(&total, copy);
        add(&sums[n], copy);
    }
    const int count = names.count;
    if (count) qsort(sums, (size_t)count, sizeof *sums, by_megabytes);
    sgrad__numbers_free(&names);
    for (int i = 0; i < count; i++) {
        json_t *tensor = sum_as_json(&sums[i]);
        json_object_set_new(tensor, "name", json_stringn(sums[i].name, (size_t)sums[i].length));
        json_array_append_new(tensors, tensor);
    }
    free(sums);
    json_t *copies = count ? json_pack("{s:o, s:O}", "all", sum_as_json(&total), "tensors", tensors) : NULL;
    json_decref(tensors);
    return copies;
}

static void print_sum(const char *name, const json_t *sum) {
    printf("%-32s %10d %16.2f %16.2f %16.2f\n", name, (int)json_integer_value(json_object_get(sum, "copies")),
           json_real_value(json_object_get(sum, "to_devices_mb")), json_real_value(json_object_get(sum, "to_host_mb")),
           json_real_value(json_object_get(sum, "between_devices_mb")));
}

void sgrad__copies_print(const json_t *copies) {
    json_t *tensor;
    size_t i;
    printf("\n%-32s %10s %16s %16s %16s\n", "copies between memories", "copies", "MB to devices", "MB to host", "MB between");
    json_array_foreach(json_object_get(copies, "tensors"), i, tensor)
        if (i < SHOWN) print_sum(json_string_value(json_object_get(tensor, "name")), tensor);
    print_sum("all", json_object_get(copies, "all"));
}
