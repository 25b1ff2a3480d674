// Rung 2 with a mistake: a walk that goes one position too far.
#pragma once
#include "kernels/common.cuh"

template <class T, int D>
__global__ void k2_warp(T* out, Queries<T> rows, PagedKV<T> kv) {
  constexpr int EACH = (D + 31) / 32;  // elements of head_dim a lane owns: lane, lane + 32, ...
  int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
  if (row >= rows.tokens * rows.heads) return;
  int token = row / rows.heads, head = row % rows.heads;
  int seq = rows.seq_of[token], length = rows.context_len[token];
  int kv_head = head / (rows.heads / kv.kv_heads);

  float q[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    int d = e * 32 + lane;
    q[e] = d < D ? to_float(rows.row(token, head)[d]) * rows.scale : 0.f;
  }

  Softmax<EACH> state;
  for (int position = 0; position <= length; ++position) {
    int64_t at = kv.offset(seq, position, kv_head);
    float part = 0.f;
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (e * 32 + lane < D) part += q[e] * to_float(kv.k[at + e * 32 + lane]);
    float score = sum_over<32>(part);
    state.raise_to(score);
    float weight = state.weigh(score);
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (e * 32 + lane < D) state.acc[e] += weight * to_float(kv.v[at + e * 32 + lane]);
  }
#pragma unroll
  for (int e = 0; e < EACH; ++e)
    if (e * 32 + lane < D) store(&out[int64_t(row) * D + e * 32 + lane], state.value(e));
}
