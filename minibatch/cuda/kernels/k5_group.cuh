// Rung 5: a block for each (token, KV head): the query heads of a group share every load of K and V.
//
// Why: with grouped queries (GQA) `heads / kv_heads` query heads attend to the same K and V. Rung 4 fetches them for
// each head; here a piece is fetched once and used for G heads from registers: traffic falls to what there is to read.
// A turn takes TURNS positions a lane: their loads are under way together, and the sums are rescaled once a turn.
// What it costs: at batch 1 a model with 8 KV heads gives the GPU 8 blocks of work, and it has room for hundreds.
#pragma once
#include "kernels/vector.cuh"

// Positions a lane takes at once: what registers allow.
template <class T, int D, int G> constexpr int TURNS = G * Row<T, D>::WIDTH > 32 ? 2 : 4;

// Let G heads see the TURNS positions of this lane, of which those from `end` on are weighed with 0.
template <class T, int D, int G, int U = TURNS<T, D, G>>
__device__ __forceinline__ void absorb(Softmax<Row<T, D>::WIDTH> (&state)[G], const Row<T, D> (&q)[G],
                                       const Row<T, D> (&k)[U], const Row<T, D> (&v)[U], float scale, int left) {
  constexpr int LANES = Row<T, D>::LANES, WIDTH = Row<T, D>::WIDTH;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    float score[U], top = -FLT_MAX;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      float part = 0.f;
#pragma unroll
      for (int n = 0; n < WIDTH; ++n) part += q[g][n] * k[u][n];
      score[u] = sum_over<LANES>(part) * scale;
      if (u * Row<T, D>::POSITIONS >= left) score[u] = -INFINITY;
      top = fmaxf(top, score[u]);
    }
    state[g].raise_to(top);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      float weight = state[g].weigh(score[u]);
#pragma unroll
      for (int n = 0; n < WIDTH; ++n) state[g].acc[n] += weight * v[u][n];
    }
  }
}

// The walk of a warp over its share of [begin, end): softmax states of G heads, in the end the same in all its lanes.
template <class T, int D, int G>
__device__ __forceinline__ void attend(Softmax<Row<T, D>::WIDTH> (&state)[G], const Queries<T>& rows,
                                       const PagedKV<T>& kv, int token, HeadTile<G> heads, int begin, int end) {
  constexpr int LANES = Row<T, D>::LANES, POSITIONS = Row<T, D>::POSITIONS, U = TURNS<T, D, G>;
  int seq = rows.seq_of[token], warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Row<T, D> q[G];
#pragma unroll
  for (int g = 0; g < G; ++g)
    if (g < heads.count) q[g].load(rows.row(token, heads.first + g));

  for (int first = begin + warp * POSITIONS * U; first < end; first += WARPS * POSITIONS * U) {
    int mine = first + lane / LANES;
    Row<T, D> k[U], v[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (mine + u * POSITIONS >= end) continue;
      int64_t at = kv.offset(seq, mine + u * POSITIONS, heads.kv_head);
      k[u].load(kv.k + at);
      v[u].load(kv.v + at);
    }
    absorb<T, D, G>(state, q, k, v, rows.scale, end - mine);
  }
#pragma unroll
  for (int g = 0; g < G; ++g) merge_lanes<LANES>(state[g]);
}

template <class T, int D, int G>
__global__ void k5_group(T* out, Queries<T> rows, PagedKV<T> kv) {
  int token = blockIdx.x;
  HeadTile<G> heads(blockIdx.y, rows.heads / kv.kv_heads);
  Softmax<Row<T, D>::WIDTH> state[G];
  attend<T, D, G>(state, rows, kv, token, heads, 0, rows.context_len[token]);

  T* out_rows = out + (int64_t(token) * rows.heads + heads.first) * D;
  merge_warps<T, D>(state, [&](int g, int d, const Softmax<4>& whole) {
    if (g < heads.count) store_four(out_rows + g * D + d, whole);
  });
}
