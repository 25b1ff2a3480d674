// Rung 7, for a GPU only: rung 6 with asynchronous copies into shared memory, double buffered (sm_80 and newer).
//
// Why: in rung 6 a warp asks for its next positions only when it is done with these. Here the next turn is being copied
// while this one is summed up, and it takes no registers. Every lane copies and reads its own pieces alone, so nobody
// meets at a barrier: a lane waits for its own copies.
// What it costs: shared memory. Older cards run it with plain copies and gain nothing.
#pragma once
#include <cuda_pipeline.h>

#include "kernels/k6_split.cuh"

template <class T, int D, int G> struct Ring {
  static constexpr int STAGES = 2, U = TURNS<T, D, G>, EACH = Row<T, D>::EACH, THREADS = 32 * WARPS;
  uint4 piece[STAGES][U][2][EACH][THREADS];  // K, then V; neighbouring threads side by side
};

// Start the copies of one turn into stage `stage`; dead positions and lanes beyond the row copy nothing.
template <class T, int D, int G>
__device__ __forceinline__ void fetch(Ring<T, D, G>& ring, int stage, const PagedKV<T>& kv, int seq, int kv_head,
                                      int mine, int end) {
  using R = Row<T, D>;
#pragma unroll
  for (int u = 0; u < TURNS<T, D, G>; ++u) {
    if (mine + u * R::POSITIONS >= end) continue;
    int64_t at = kv.offset(seq, mine + u * R::POSITIONS, kv_head);
#pragma unroll
    for (int e = 0; e < R::EACH; ++e) {
      int i = e * R::LANES + threadIdx.x % R::LANES;
      if (i >= R::PIECES) continue;
      __pipeline_memcpy_async(&ring.piece[stage][u][0][e][threadIdx.x], kv.k + at + i * R::N, 16);
      __pipeline_memcpy_async(&ring.piece[stage][u][1][e][threadIdx.x], kv.v + at + i * R::N, 16);
    }
  }
  __pipeline_commit();
}

template <class T, int D, int G>
__global__ void k7_async(Parts parts, Queries<T> rows, PagedKV<T> kv) {
  using R = Row<T, D>;
  constexpr int U = TURNS<T, D, G>, STAGES = Ring<T, D, G>::STAGES, STEP = WARPS * R::POSITIONS * U;
  extern __shared__ __align__(16) unsigned char smem[];
  Ring<T, D, G>& ring = *reinterpret_cast<Ring<T, D, G>*>(smem);
  int token = blockIdx.x, seq = rows.seq_of[token], context = rows.context_len[token];
  int length = parts.length(context), begin = blockIdx.z * length, end = min(context, begin + length);
  if (begin >= end) return;
  HeadTile<G> heads(blockIdx.y, rows.heads / kv.kv_heads);
  R q[G];
#pragma unroll
  for (int g = 0; g < G; ++g)
    if (g < heads.count) q[g].load(rows.row(token, heads.first + g));

  int first = begin + threadIdx.x / 32 * R::POSITIONS * U, mine = first + threadIdx.x % 32 / R::LANES;
  Softmax<R::WIDTH> state[G];
  for (int s = 0; s < STAGES; ++s) fetch<T, D, G>(ring, s, kv, seq, heads.kv_head, mine + s * STEP, end);
  for (int stage = 0; first < end; first += STEP, mine += STEP, stage = (stage + 1) % STAGES) {
    __pipeline_wait_prior(STAGES - 1);
    R k[U], v[U];
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int e = 0; e < R::EACH; ++e) {
        if (mine + u * R::POSITIONS >= end || e * R::LANES + threadIdx.x % R::LANES >= R::PIECES) continue;
        k[u].piece[e] = ring.piece[stage][u][0][e][threadIdx.x];
        v[u].piece[e] = ring.piece[stage][u][1][e][threadIdx.x];
      }
    absorb<T, D, G>(state, q, k, v, rows.scale, end - mine);
    fetch<T, D, G>(ring, stage, kv, seq, heads.kv_head, mine + STAGES * STEP, end);
  }
#pragma unroll
  for (int g = 0; g < G; ++g) merge_lanes<R::LANES>(state[g]);
  leave_part<T, D, G>(parts, state, rows, heads);
}
