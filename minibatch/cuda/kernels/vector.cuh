// Rows of head_dim in pieces of sixteen bytes, the widest load there is. Used from rung 4 on.
//
//   head_dim 128 in bfloat16: a row is 16 pieces of 8 elements, so 16 lanes hold a position and a warp holds two.
//   lanes      0 .. 15   position p      lanes 16 .. 31   position p + 1
#pragma once
#include "kernels/common.cuh"

template <class T, int D> struct Row {
  static constexpr int N = 16 / sizeof(T);  // elements of a piece
  static constexpr int PIECES = D / N;
  static constexpr int lanes(int n) { return n >= PIECES || n == 32 ? n : lanes(2 * n); }
  static constexpr int LANES = lanes(1);    // lanes of a position: a power of two, for the shuffle sum
  static constexpr int POSITIONS = 32 / LANES;  // positions of a warp
  static constexpr int EACH = (PIECES + LANES - 1) / LANES;  // pieces of a lane: lane, lane + LANES, ...
  static constexpr int WIDTH = EACH * N;    // elements of a lane
  static_assert(D % N == 0, "a row is whole pieces");

  uint4 piece[EACH] = {};

  // Take this lane's share of a row. Lanes beyond the row (80 elements are 10 pieces for 16 lanes) keep zeros.
  __device__ __forceinline__ void load(const T* row) {
    int lane = threadIdx.x % LANES;
#pragma unroll
    for (int e = 0; e < EACH; ++e)
      if (PIECES % LANES == 0 || e * LANES + lane < PIECES)
        piece[e] = __ldg(reinterpret_cast<const uint4*>(row) + e * LANES + lane);
  }

  __device__ __forceinline__ float operator[](int n) const {
    return to_float(reinterpret_cast<const T*>(&piece[n / N])[n % N]);
  }
};

// Merge the states of the positions a warp holds side by side: all its lanes end with the state of the whole warp.
template <int LANES, int N> __device__ __forceinline__ void merge_lanes(Softmax<N>& state) {
#pragma unroll
  for (int step = LANES; step < 32; step *= 2) {
    float other[N];
#pragma unroll
    for (int n = 0; n < N; ++n) other[n] = __shfl_xor_sync(ALL_LANES, state.acc[n], step);
    float top = __shfl_xor_sync(ALL_LANES, state.top, step), sum = __shfl_xor_sync(ALL_LANES, state.sum, step);
    state.merge(top, sum, other);
  }
}

// Merge the states of a block's warps, for G query heads: `write(g, d, state)` gets elements d .. d + 3 of head g.
//
// A lane has WIDTH elements, in fours. Fours number c of neighbouring lanes lie side by side, so a warp stores to 32
// different banks: kept in the order of head_dim, lanes would be 8 elements apart in half precision, two to a bank.
template <class T, int D, int G, class Write>
__device__ __forceinline__ void merge_warps(const Softmax<Row<T, D>::WIDTH> (&state)[G], Write write) {
  constexpr int LANES = Row<T, D>::LANES, N = Row<T, D>::N, FOURS = Row<T, D>::WIDTH / 4;
  __shared__ float top[G][WARPS], sum[G][WARPS];
  __shared__ float4 acc[G][WARPS][FOURS * LANES];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int g = 0; g < G; ++g) {
    if (lane == 0) top[g][warp] = state[g].top, sum[g][warp] = state[g].sum;
    const float* a = state[g].acc;
#pragma unroll
    for (int c = 0; c < FOURS; ++c) {
      float4 four = {a[4 * c], a[4 * c + 1], a[4 * c + 2], a[4 * c + 3]};
      if (lane < LANES) acc[g][warp][c * LANES + lane] = four;
    }
  }
  __syncthreads();

  for (int i = threadIdx.x; i < G * FOURS * LANES; i += blockDim.x) {
    int g = i / (FOURS * LANES), slot = i % (FOURS * LANES);
    int four = slot / LANES * 4, d = (four / N * LANES + slot % LANES) * N + four % N;
    Softmax<4> whole;
    for (int w = 0; w < WARPS; ++w) {
      float4 a = acc[g][w][slot];
      float part[4] = {a.x, a.y, a.z, a.w};
      whole.merge(top[g][w], sum[g][w], part);
    }
    if (d < D) write(g, d, whole);
  }
}

// Store four results side by side, in one instruction.
template <class T> __device__ __forceinline__ void store_four(T* to, const Softmax<4>& state) {
  struct alignas(4 * sizeof(T)) Four { T x[4]; } four;
#pragma unroll
  for (int n = 0; n < 4; ++n) store(&four.x[n], state.value(n));
  *reinterpret_cast<Four*>(to) = four;
}
