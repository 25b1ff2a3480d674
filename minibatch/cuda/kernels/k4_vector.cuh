// Rung 4: sixteen bytes a load, so that a few lanes hold a position and a warp holds several.
//
// Why: the hardware takes requests, not bytes; with 2 or 4 bytes a lane most of its time goes into asking. A row of
// head_dim 64 in float32 is 16 lanes of one request; the warp's other 16 lanes hold the next position, and a score
// needs 4 shuffles instead of 5.
// What it costs: the query heads of a group still read the same K and V, each for itself.
#pragma once
#include "kernels/vector.cuh"

template <class T, int D>
__global__ void k4_vector(T* out, Queries<T> rows, PagedKV<T> kv) {
  constexpr int LANES = Row<T, D>::LANES, POSITIONS = Row<T, D>::POSITIONS, WIDTH = Row<T, D>::WIDTH;
  int token = blockIdx.x, head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int seq = rows.seq_of[token], length = rows.context_len[token];
  int kv_head = head / (rows.heads / kv.kv_heads);

  Row<T, D> q;
  q.load(rows.row(token, head));
  Softmax<WIDTH> state[1];
  for (int first = warp * POSITIONS; first < length; first += WARPS * POSITIONS) {
    int position = first + lane / LANES;
    Row<T, D> k, v;
    if (position < length) {
      int64_t at = kv.offset(seq, position, kv_head);
      k.load(kv.k + at);
      v.load(kv.v + at);
    }
    float part = 0.f;
#pragma unroll
    for (int n = 0; n < WIDTH; ++n) part += q[n] * k[n];
    // Every lane takes part in the shuffle, also those past the end; then their position is weighed with 0.
    float score = sum_over<LANES>(part) * rows.scale;
    if (position >= length) score = -INFINITY;
    state[0].raise_to(score);
    float weight = state[0].weigh(score);
#pragma unroll
    for (int n = 0; n < WIDTH; ++n) state[0].acc[n] += weight * v[n];
  }

  merge_lanes<LANES>(state[0]);
  T* out_row = out + (int64_t(token) * rows.heads + head) * D;
  merge_warps<T, D>(state, [&](int, int d, const Softmax<4>& whole) { store_four(out_row + d, whole); });
}
