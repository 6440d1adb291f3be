/* cudnn_graph.h: the parts of the emulated backend API of cuDNN: descriptors (cudnn_graph.cc), and graphs of attention
 * (cudnn_attention.cc). */
#ifndef SGRAD_EMULATOR_CUDNN_GRAPH_H
#define SGRAD_EMULATOR_CUDNN_GRAPH_H

#include "tests/gpu/emulator/libraries.h"

#include <map>
#include <vector>

namespace emulator {

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finished;
    std::map<int, std::vector<char>> attribute;
    std::map<int, cudnnBackendAttributeType_t> attribute_type;

    template <typename T> const T *all(int name, int64_t *count = NULL) const {
        const auto found = attribute.find(name);
        if (count) *count = found == attribute.end() ? 0 : (int64_t)(found->second.size() / sizeof(T));
        return found == attribute.end() ? NULL : (const T *)found->second.data();
    }
    template <typename T> T one(int name, T otherwise = T()) const {
        const T *value = all<T>(name);
        return value ? *value : otherwise;
    }
    const struct descriptor *part(int name) const { return one<const struct descriptor *>(name); }
};

/* Is there a product of matrices in the graph? Then it is one of attention. */
bool is_attention(const struct descriptor *graph);

/* Are these a tensor, an operation of attention, a graph of it, as cuDNN describes them? */
bool is_attention_tensor(const struct descriptor *d);
bool is_attention_operation(const struct descriptor *d);
bool is_attention_graph(const struct descriptor *graph);

/* Does cuDNN have an engine for the graph? */
bool computes_attention(const struct descriptor *graph);

/* Gives the graph to the handle's stream. GIVEN: addresses by the tensors' unique ids. ROOM: BYTES of workspace. */
cudnnStatus_t execute_attention(cudnnHandle_t h, const struct descriptor *graph, const std::map<int64_t, void *> &given,
                                void *room, size_t bytes);
} // namespace emulator

#endif
