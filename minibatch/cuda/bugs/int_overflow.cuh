// Rung 1 with a mistake: an offset in a type that is too small for it. In real life the type is int and the pool has 2^31
// elements or more (block 131,072 of 16 x 8 x 128); here it is short, so that a pool of 2^15 elements is enough.
#pragma once
#include "kernels/common.cuh"

template <class T, int D>
__global__ void k1_thread(T* out, Queries<T> rows, PagedKV<T> kv) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows.tokens * rows.heads) return;
  int token = row / rows.heads, head = row % rows.heads;
  int seq = rows.seq_of[token], length = rows.context_len[token];
  int kv_head = head / (rows.heads / kv.kv_heads);  // neighbouring query heads share a KV head
  const T* q = rows.row(token, head);

  Softmax<D> state;
  for (int position = 0; position < length; ++position) {
    short at = kv.offset(seq, position, kv_head);
    float score = 0.f;
    for (int d = 0; d < D; ++d) score += to_float(q[d]) * to_float(kv.k[at + d]);
    score *= rows.scale;
    state.raise_to(score);
    float weight = state.weigh(score);
    for (int d = 0; d < D; ++d) state.acc[d] += weight * to_float(kv.v[at + d]);
  }
  for (int d = 0; d < D; ++d) store(&out[int64_t(row) * D + d], state.value(d));
}
