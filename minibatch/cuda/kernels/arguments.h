// What the C entry points of a library take: plain structs that every compiler, and Python through ctypes, lays out alike.
#pragma once
#include <cstdint>

extern "C" {
// Mirrored field by field in library.py. Strides count elements; the last dimension of each tensor has no gaps.
struct AttentionArguments {
  void* out;                                     // [tokens, heads, head_dim], contiguous
  const void *q, *k, *v;
  const int *block_table, *seq_of, *context_len;
  float *part_acc, *part_state;                  // rung 6: [tokens, heads, parts, head_dim] and [..., 2], contiguous
  int64_t q_token, q_head, kv_block, kv_slot, kv_head;
  int32_t tokens, heads, kv_heads, block_size, max_blocks, rung, parts, device;
  float scale;
};

struct WriteArguments {
  void *k_cache, *v_cache;
  const void *k, *v;
  const int64_t* slot_mapping;
  int64_t k_token, k_head, v_token, v_head, kv_block, kv_slot, kv_head;
  int32_t tokens, kv_heads, block_size, device;
};

// kernels/launch.h says what they return; `stream` is a cudaStream_t.
int minibatch_paged_attention(const AttentionArguments* arguments, void* stream);
int minibatch_cache_write(const WriteArguments* arguments, void* stream);
const char* minibatch_cuda_error(int error);
}
