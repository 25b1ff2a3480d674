// What every rung of the ladder uses: where Q, K and V lie, numbers in and out, sums over a warp, online softmax.
#pragma once
#include "gpu.h"

constexpr int WARPS = 4;  // warps in a block, wherever a block is more than a warp
constexpr unsigned ALL_LANES = 0xffffffffu;

// The query tokens of one launch, laid end to end: decodes, prefill chunks, any mixture. Strides count elements.
template <class T> struct Queries {
  const T* q;                                // [tokens, heads, head_dim], the last dimension without gaps
  const int* seq_of;                         // [tokens]: its row of the block table
  const int* context_len;                    // [tokens]: how many positions it sees; 0 is an empty row
  int64_t token_stride, head_stride;
  int tokens, heads;
  float scale;

  __device__ __forceinline__ const T* row(int token, int head) const {
    return q + token * token_stride + head * head_stride;
  }
};

// The pool of K and V. Both tensors have these strides (in elements), so one offset serves both.
template <class T> struct PagedKV {
  const T *k, *v;                            // [num_blocks, block_size, kv_heads, head_dim]
  const int* block_table;                    // [num_seqs, max_blocks]
  int64_t block_stride, slot_stride, head_stride;
  int block_size, kv_heads, max_blocks;

  // Where K and V of a position lie. 64 bits: block 131,072 of 16 x 8 x 128 elements starts at 2^31.
  __device__ __forceinline__ int64_t offset(int seq, int position, int kv_head) const {
    int64_t block = block_table[int64_t(seq) * max_blocks + position / block_size];
    return block * block_stride + position % block_size * slot_stride + kv_head * head_stride;
  }
};

// Which KV head, and which of its query heads, a block works for. Groups larger than G take several tiles.
template <int G> struct HeadTile {
  int kv_head, first, count;

  __device__ __forceinline__ HeadTile(int index, int group) {
    int tiles = (group + G - 1) / G, tile = index % tiles;
    kv_head = index / tiles;
    first = kv_head * group + tile * G;
    count = min(G, group - tile * G);
  }
};

// All arithmetic is in float32; T is only how numbers are stored.
__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void store(float* to, float x) { *to = x; }
__device__ __forceinline__ void store(__half* to, float x) { *to = __float2half(x); }
__device__ __forceinline__ void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16(x); }

// The sum of x over each aligned run of LANES lanes (a power of two), in every lane of the run.
template <int LANES> __device__ __forceinline__ float sum_over(float x) {
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(ALL_LANES, x, step);
  return x;
}

// Softmax in one pass (Milakov and Gimelshein 2018): the largest score so far, and sums taken relative to it.
template <int N> struct Softmax {
  float top = -FLT_MAX, sum = 0.f, acc[N] = {};

  // Make room for a larger score: what was summed is brought to the new maximum.
  __device__ __forceinline__ void raise_to(float score) {
    float before = top;
    top = fmaxf(top, score);
    float fix = __expf(before - top);
    sum *= fix;
#pragma unroll
    for (int n = 0; n < N; ++n) acc[n] *= fix;
  }

  // The weight of a score that is not above `top`; the caller adds weight * V to acc. A score of -INFINITY weighs 0.
  __device__ __forceinline__ float weigh(float score) {
    float weight = __expf(score - top);
    sum += weight;
    return weight;
  }

  // Add what somebody else has seen of other positions: softmax states merge in any order.
  __device__ __forceinline__ void merge(float other_top, float other_sum, const float* other_acc) {
    raise_to(other_top);
    float fix = __expf(other_top - top);
    sum += other_sum * fix;
#pragma unroll
    for (int n = 0; n < N; ++n) acc[n] += other_acc[n] * fix;
  }

  // The result; 0 where nothing was seen.
  __device__ __forceinline__ float value(int n) const { return sum == 0.f ? 0.f : acc[n] / sum; }
};
