/* cudnn_descriptors.h: descriptors of cuDNN's graph API. It is used through its C functions, cudnnBackend…, without NVIDIA's
 * C++ library. Private to cudnn_graph_cuda.cu, cudnn_draw_cuda.cu and attention_graph_cuda.cu. */
#ifndef SGRAD_CODELETS_CUDA_CUDNN_DESCRIPTORS_H
#define SGRAD_CODELETS_CUDA_CUDNN_DESCRIPTORS_H

#include "codelets/cuda/cudnn_graph.h"

/* A set of descriptors, which are destroyed with it. After a failure, make, set and finish do nothing; status is the error of
 * the failed function. make returns NULL if it fails. */
class sgrad__descriptors {
    std::vector<cudnnBackendDescriptor_t> made;

  public:
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    sgrad__descriptors() = default;
    sgrad__descriptors(const sgrad__descriptors &) = delete;
    ~sgrad__descriptors() {
        while (!made.empty()) {
            cudnnBackendDestroyDescriptor(made.back());
            made.pop_back();
        }
    }
    bool good() const { return status == CUDNN_STATUS_SUCCESS; }
    cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type) {
        cudnnBackendDescriptor_t d = NULL;
        if (good() && good_is(cudnnBackendCreateDescriptor(type, &d))) made.push_back(d);
        return d;
    }
    bool good_is(cudnnStatus_t now) { return (status = now) == CUDNN_STATUS_SUCCESS; }
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
             const void *value) {
        if (good()) good_is(cudnnBackendSetAttribute(d, name, type, count, value));
    }
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
        set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
    }
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, cudnnDataType_t value) {
        set(d, name, CUDNN_TYPE_DATA_TYPE, 1, &value);
    }
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, int64_t value) {
        set(d, name, CUDNN_TYPE_INT64, 1, &value);
    }
    cudnnBackendDescriptor_t finish(cudnnBackendDescriptor_t d) {
        if (good()) good_is(cudnnBackendFinalize(d));
        return d;
    }
};

/* Returns the unique id of an operand in graphs. */
static inline int64_t sgrad__graph_uid(int64_t number) { return number + 1; }

#endif
