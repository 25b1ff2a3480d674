// Rung 6 with a mistake: all parts of a context leave their state in the same place.
#pragma once
#ifndef K5  // launch.h may have put another file in its place
#define K5 "kernels/k5_group.cuh"
#endif
#include K5

constexpr int PART_UNIT = 64;  // a part is a multiple of this many positions: less is not worth a block

struct Parts {
  float* acc;     // [tokens, heads, count, head_dim]
  float2* state;  // [tokens, heads, count]: top, sum
  int count;

  __device__ __forceinline__ int length(int context) const {
    int even = (context + count - 1) / count;
    return (even + PART_UNIT - 1) / PART_UNIT * PART_UNIT;
  }
};

// What a block has seen of its part, for the merge.
template <class T, int D, int G>
__device__ __forceinline__ void leave_part(const Parts& parts, const Softmax<Row<T, D>::WIDTH> (&states)[G],
                                           const Queries<T>& rows, HeadTile<G> heads) {
  int64_t first = (int64_t(blockIdx.x) * rows.heads + heads.first) * parts.count;
  merge_warps<T, D>(states, [&](int g, int d, const Softmax<4>& whole) {
    if (g >= heads.count) return;
    int64_t at = first + g * parts.count;
    float4 four = {whole.acc[0], whole.acc[1], whole.acc[2], whole.acc[3]};
    float2 state = {whole.top, whole.sum};
    *reinterpret_cast<float4*>(&parts.acc[at * D + d]) = four;
    if (d == 0) parts.state[at] = state;
  });
}

template <class T, int D, int G>
__global__ void k6_split(Parts parts, Queries<T> rows, PagedKV<T> kv) {
  int token = blockIdx.x, part = blockIdx.z, context = rows.context_len[token], length = parts.length(context);
  int begin = part * length, end = min(context, begin + length);
  if (begin >= end) return;  // a short context has fewer parts
  HeadTile<G> heads(blockIdx.y, rows.heads / kv.kv_heads);
  Softmax<Row<T, D>::WIDTH> state[G];
  attend<T, D, G>(state, rows, kv, token, heads, begin, end);

  leave_part<T, D, G>(parts, state, rows, heads);
}

// A block for each (token, head), a thread for four elements of head_dim.
template <class T, int D>
__global__ void k6_merge(T* out, Parts parts, Queries<T> rows) {
  int token = blockIdx.x, head = blockIdx.y, d = 4 * threadIdx.x, context = rows.context_len[token];
  int64_t row = int64_t(token) * rows.heads + head;
  Softmax<4> whole;
  for (int part = 0; part * parts.length(context) < context; ++part) {
    int64_t at = row * parts.count + part;
    float2 state = parts.state[at];
    float4 a = *reinterpret_cast<const float4*>(&parts.acc[at * D + d]);
    float acc[4] = {a.x, a.y, a.z, a.w};
    whole.merge(state.x, state.y, acc);
  }
  store_four(out + row * D + d, whole);
}
