/* linear_cuda.cu: linear.c on CUDA devices, through cuBLAS. cuBLAS is column-major: it sees a row-major tensor (rows,columns) as
 * a matrix of columns × rows.
 *
 *     y  (N,K) = x (N,C) · weight (K,C)ᵀ      cuBLAS sees    yᵀ  K×N = weight · xᵀ
 *     dx (N,C) = dy (N,K) · weight (K,C)                     dxᵀ C×N = weightᵀ · dyᵀ
 *     dweight (K,C) = dyᵀ · x                                dweightᵀ C×K = xᵀ · dy
 *
 * Sums are F32; products are F32, too, unless TF32 is enabled. In bf16 runs an F32 weight is first rounded to bf16 in the
 * workspace; dweight is F32. */
#include "codelets/cuda/cuda.h"

struct matrix {
    const void *data;
    cudaDataType_t type;
    cublasOperation_t turn;
    int64_t columns; /* of the tensor: cuBLAS's leading dimension */
};

/* to (columns × rows, column-major) = left · right + beta · to; INNER is the dimension that is summed over */
static void multiply(int64_t columns, int64_t rows, int64_t inner, const struct matrix &left, const struct matrix &right,
                     float beta, void *to, cudaDataType_t type, bool tf32) {
    const float one = 1;
    SGRAD_CUDA(cublasGemmEx(sgrad_cublas(), left.turn, right.turn, (int)columns, (int)rows, (int)inner, &one, left.data,
                            left.type, (int)left.columns, right.data, right.type, (int)right.columns, &beta, to, type,
                            (int)columns, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

static cudaDataType_t type_of(const struct sgrad_view *view) { return view->dtype == SGRAD_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

/* Returns the weight, operand 1, in the type of the activations. */
static const void *weight_of(const struct sgrad_args *args) {
    const int64_t n = sgrad_shape_count(&args->view[1].shape);
    if (args->view[0].dtype == args->view[1].dtype) return args->data[1];
    if (args->workspace_size < n * sizeof(__nv_bfloat16)) sgrad_cuda_fail("workspace too small", "linear");
    sgrad__convert(n, (const float *)args->data[1], (__nv_bfloat16 *)args->workspace);
    return args->workspace;
}

/* Bytes for the rounded weight; 0 if the weight is already rounded, and for backward-weight, whose operand 1 is dy. */
extern "C" size_t sgrad__linear_workspace_cuda(const struct sgrad_args *args) {
    return args->view[0].dtype != args->view[1].dtype ? sgrad_shape_count(&args->view[1].shape) * sizeof(__nv_bfloat16) : 0;
}

/* Each index of the leading dimensions is a row. */
static int64_t rows_of(const struct sgrad_view *view) {
    return sgrad_shape_count(&view->shape) / view->shape.dim[view->shape.rank - 1];
}

/* x (N,…,C), weight (K,C), bias (K) or absent, y (N,…,K) */
extern "C" void sgrad__linear_forward_cuda(const struct sgrad_args *args) {
    const int64_t N = rows_of(&args->view[0]), K = args->view[1].shape.dim[0], C = args->view[1].shape.dim[1];
    const cudaDataType_t type = type_of(&args->view[0]);
    multiply(K, N, C, { weight_of(args), type, CUBLAS_OP_T, C }, { args->data[0], type, CUBLAS_OP_N, C }, 0, args->data[3], type,
             args->tf32);
    if (args->data[2]) sgrad__add_bias(&args->view[3], (const float *)args->data[2], args->data[3]);
}

/* dy (N,…,K), weight (K,C), dx (N,…,C) */
extern "C" void sgrad__linear_backward_data_cuda(const struct sgrad_args *args) {
    const int64_t N = rows_of(&args->view[0]), K = args->view[1].shape.dim[0], C = args->view[1].shape.dim[1];
    const cudaDataType_t type = type_of(&args->view[0]);
    multiply(C, N, K, { weight_of(args), type, CUBLAS_OP_N, C }, { args->data[0], type, CUBLAS_OP_N, K }, sgrad_adds(args, 2),
             args->data[2], type, args->tf32);
}

/* x (N,…,C), dy (N,…,K), dweight (K,C), dbias (K) or absent */
extern "C" void sgrad__linear_backward_weight_cuda(const struct sgrad_args *args) {
    const int64_t N = rows_of(&args->view[0]), K = args->view[2].shape.dim[0], C = args->view[2].shape.dim[1];
    const cudaDataType_t type = type_of(&args->view[0]);
    multiply(C, K, N, { args->data[0], type, CUBLAS_OP_N, C }, { args->data[1], type, CUBLAS_OP_T, K }, 0, args->data[2],
             CUDA_R_32F, args->tf32);
    if (args->data[3]) sgrad__sum_bias(&args->view[1], args->data[1], (float *)args->data[3]);
}
