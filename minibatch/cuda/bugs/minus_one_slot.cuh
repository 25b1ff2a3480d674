// The cache write with a mistake: a slot of -1 is taken for a slot.
#pragma once
#include "kernels/vector.cuh"

template <class T> struct NewKV {
  const T *k, *v;               // [tokens, kv_heads, head_dim]
  const int64_t* slot_mapping;  // [tokens]
  int64_t k_token, k_head, v_token, v_head;  // strides, in elements
};

template <class T, int D>
__global__ void cache_write(T* k_cache, T* v_cache, NewKV<T> fresh, PagedKV<T> kv) {
  constexpr int N = Row<T, D>::N, PIECES = Row<T, D>::PIECES;
  int64_t token = blockIdx.x, slot = fresh.slot_mapping[token];
  int64_t to = slot / kv.block_size * kv.block_stride + slot % kv.block_size * kv.slot_stride;
  for (int i = threadIdx.x; i < kv.kv_heads * PIECES; i += blockDim.x) {
    int head = i / PIECES, d = i % PIECES * N;
    const T* k = fresh.k + token * fresh.k_token + head * fresh.k_head + d;
    const T* v = fresh.v + token * fresh.v_token + head * fresh.v_head + d;
    int64_t at = to + head * kv.head_stride + d;
    *reinterpret_cast<uint4*>(k_cache + at) = __ldg(reinterpret_cast<const uint4*>(k));
    *reinterpret_cast<uint4*>(v_cache + at) = __ldg(reinterpret_cast<const uint4*>(v));
  }
}
