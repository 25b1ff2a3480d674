// Rung 1: a thread for each (token, head).
//
// Why: it is the definition, written down. One pass over the context, softmax on the way, and no memory that grows with
// the context; the block table is followed position by position.
// What it costs: the 32 lanes of a warp belong to different heads and tokens, so each load touches 32 places far apart.
// Memory is read in sectors of 32 bytes, and a lane uses 4 (float32) or 2 of them. And a thread needs D
// accumulators and has 255 registers: of head_dim 128 or 256 they go to memory.
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
    int64_t at = kv.offset(seq, position, kv_head);
    float score = 0.f;
    for (int d = 0; d < D; ++d) score += to_float(q[d]) * to_float(kv.k[at + d]);
    score *= rows.scale;
    state.raise_to(score);
    float weight = state.weigh(score);
    for (int d = 0; d < D; ++d) state.acc[d] += weight * to_float(kv.v[at + d]);
  }
  for (int d = 0; d < D; ++d) store(&out[int64_t(row) * D + d], state.value(d));
}
