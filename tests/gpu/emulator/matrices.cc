/* matrices.cc: the matrix instructions of a GPU, for all lanes of a warp at once, as plain loops. codelets/cuda/tensor_cores.h
 * defines the results, and the PTX ISA the elements of each lane. */
#include "tests/gpu/emulator/emulator.h"

namespace emulator {

namespace {

float bf16_half(uint32_t word, int half) {
    const uint32_t bits = (half ? word >> 16 : word & 0xffff) << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The hardware ignores the bits that TF32 does not have. */
float tf32(uint32_t bits) {
    float x;
    bits &= 0xffffe000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

struct product {
    float *sum;
    const uint32_t *left, *right;
};

/* Lane 4·g + t has column k of row g where t is: */
template <int DEPTH> int place(int k) { return DEPTH == 16 ? k / 2 % 4 : k % 4; }

/* What lanes have of sum (16×8) += left (16×DEPTH) · right (DEPTH×8). */
template <int DEPTH>
void multiply(void *const data[32], float (*left_at)(const product *, int, int), float (*right_at)(const product *, int, int)) {
    float left[16][DEPTH], right[DEPTH][8];
    const product *const *lane = (const product *const *)data;
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < DEPTH; k++) left[i][k] = left_at(lane[i % 8 * 4 + place<DEPTH>(k)], i / 8 + 2 * (k / (DEPTH / 2)), k);
    for (int k = 0; k < DEPTH; k++)
        for (int j = 0; j < 8; j++) right[k][j] = right_at(lane[j * 4 + place<DEPTH>(k)], k / (DEPTH / 2), k);
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 4; e++) {
            float sum = lane[l]->sum[e];
            for (int k = 0; k < DEPTH; k++) sum += left[l / 4 + 8 * (e / 2)][k] * right[k][2 * (l % 4) + e % 2];
            lane[l]->sum[e] = sum;
        }
}

void multiply_all_bf16(void *const data[32]) {
    multiply<16>(
        data, [](const product *p, int i, int k) { return bf16_half(p->left[i], k % 2); },
        [](const product *p, int i, int k) { return bf16_half(p->right[i], k % 2); });
}
void multiply_all_tf32(void *const data[32]) {
    multiply<8>(
        data, [](const product *p, int i, int) { return tf32(p->left[i]); },
        [](const product *p, int i, int) { return tf32(p->right[i]); });
}

struct loading {
    uint32_t *to;
    const uint16_t *row;
};

template <bool TURNED> void load_all(void *const data[32]) {
    const loading *const *lane = (const loading *const *)data;
    for (int l = 0; l < 32; l++)
        for (int i = 0; i < 4; i++) {
            const int g = l / 4, c = l % 4 * 2;
            const uint16_t low = TURNED ? lane[8 * i + c]->row[g] : lane[8 * i + g]->row[c];
            const uint16_t high = TURNED ? lane[8 * i + c + 1]->row[g] : lane[8 * i + g]->row[c + 1];
            lane[l]->to[i] = low | (uint32_t)high << 16;
        }
}

} // namespace

void multiply_bf16(float *sum, const uint32_t *left, const uint32_t *right) {
    product p = { sum, left, right };
    together(multiply_all_bf16, &p);
}
void multiply_tf32(float *sum, const uint32_t *left, const uint32_t *right) {
    product p = { sum, left, right };
    together(multiply_all_tf32, &p);
}

/* To the nearest, halves away from 0. */
uint32_t round_to_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return std::isfinite(x) ? (bits + 0x1000) & 0xffffe000 : bits;
}

static void check_row(const void *row) {
    if ((uintptr_t)row % 16) fail("a row of a matrix in shared memory begins at %p, which is no multiple of 16", row);
}
void load_matrices(uint32_t *to, const void *row) {
    loading l = { to, (const uint16_t *)row };
    check_row(row);
    together(load_all<false>, &l);
}
void load_turned_matrices(uint32_t *to, const void *row) {
    loading l = { to, (const uint16_t *)row };
    check_row(row);
    together(load_all<true>, &l);
}
} // namespace emulator
