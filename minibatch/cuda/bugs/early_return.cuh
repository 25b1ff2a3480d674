// Rung 3 with a mistake: a warp without a position goes home early.
#pragma once
#include "kernels/common.cuh"

template <class T, int D>
__global__ void k3_block(T* out, Queries<T> rows, PagedKV<T> kv) {
  constexpr int EACH = (D + 31) / 32;
  __shared__ float top[WARPS], sum[WARPS], acc[WARPS][D];
  int token = blockIdx.x, head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int seq = rows.seq_of[token], length = rows.context_len[token];
  int kv_head = head / (rows.heads / kv.kv_heads);
  if (warp >= length) return;

  float q[EACH];
#pragma unroll
  for (int e = 0; e < EACH; ++e) {
    int d = e * 32 + lane;
    q[e] = d < D ? to_float(rows.row(token, head)[d]) * rows.scale : 0.f;
  }

  Softmax<EACH> state;
  for (int position = warp; position < length; position += WARPS) {
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

  if (lane == 0) top[warp] = state.top, sum[warp] = state.sum;
#pragma unroll
  for (int e = 0; e < EACH; ++e)
    if (e * 32 + lane < D) acc[warp][e * 32 + lane] = state.acc[e];
  __syncthreads();

  T* out_row = out + (int64_t(token) * rows.heads + head) * D;
  for (int d = threadIdx.x; d < D; d += blockDim.x) {
    Softmax<1> whole;
    for (int w = 0; w < WARPS; ++w) whole.merge(top[w], sum[w], &acc[w][d]);
    store(&out_row[d], whole.value(0));
  }
}
