// The host side, the same for both compilers: plain C functions that Python calls through ctypes.
//
// A library is built for one type and one head size (-DSCALAR=__half -DHEAD_DIM=128), so that it compiles in seconds;
// the group of query heads and the rung are chosen here. -DK3='"my.cuh"' puts another file in the place of a rung;
// with -DONLY=3 as well, the other half of the ladder is left out and it compiles three times as fast.
#pragma once
#ifndef SCALAR
#define SCALAR float
#endif
#ifndef HEAD_DIM
#define HEAD_DIM 64
#endif
#ifndef ONLY
#define ONLY 0
#endif
#ifndef K1
#define K1 "kernels/k1_thread.cuh"
#endif
#ifndef K2
#define K2 "kernels/k2_warp.cuh"
#endif
#ifndef K3
#define K3 "kernels/k3_block.cuh"
#endif
#ifndef K4
#define K4 "kernels/k4_vector.cuh"
#endif
#ifndef K5
#define K5 "kernels/k5_group.cuh"
#endif
#ifndef K6
#define K6 "kernels/k6_split.cuh"
#endif
#ifndef CACHE_WRITE
#define CACHE_WRITE "kernels/cache_write.cuh"
#endif
#include "kernels/arguments.h"
#include K1
#include K2
#include K3
#include K4
#include K5
#include K6
#ifdef __CUDACC__
#include "kernels/k7_async.cuh"
#endif
#include CACHE_WRITE

// What a launch function returns: 0, one of these, or CUDA_ERROR + a cudaError_t.
enum Refusal { BAD_RUNG = 1, BAD_HEADS, BAD_SIZE, CUDA_ERROR = 1000 };

// Work on one GPU of several, and leave the caller's choice as it was.
struct OnDevice {
  int before = 0, error = 0;
  explicit OnDevice(int device) {
#ifdef __CUDACC__
    error = cudaGetDevice(&before);
    if (!error && before != device) error = cudaSetDevice(device);
#else
    (void)device;
#endif
  }
  ~OnDevice() {
#ifdef __CUDACC__
    if (!error) cudaSetDevice(before);
#endif
  }
};

template <class T, int D> struct Launcher {
  const AttentionArguments& a;
  cudaStream_t stream;
  T* out = static_cast<T*>(a.out);
  Queries<T> rows{static_cast<const T*>(a.q), a.seq_of, a.context_len, a.q_token, a.q_head,
                  a.tokens, a.heads, a.scale};
  PagedKV<T> kv{static_cast<const T*>(a.k), static_cast<const T*>(a.v), a.block_table, a.kv_block, a.kv_slot,
                a.kv_head, a.block_size, a.kv_heads, a.max_blocks};
  dim3 warps = dim3(32 * WARPS), by_head = dim3(a.tokens, a.heads);

  static unsigned blocks(int64_t items, int each) { return unsigned((items + each - 1) / each); }

  int run() const {
    int64_t pairs = int64_t(a.tokens) * a.heads;
    if constexpr (ONLY <= 4) switch (a.rung) {
      case 1: return launch("k1_thread", dim3(blocks(pairs, 64)), dim3(64), 0, stream, k1_thread<T, D>, out, rows, kv);
      case 2: return launch("k2_warp", dim3(blocks(pairs, WARPS)), warps, 0, stream, k2_warp<T, D>, out, rows, kv);
      case 3: return launch("k3_block", by_head, warps, 0, stream, k3_block<T, D>, out, rows, kv);
      case 4: return launch("k4_vector", by_head, warps, 0, stream, k4_vector<T, D>, out, rows, kv);
    }
    if constexpr (ONLY == 0 || ONLY > 4) {
      int group = a.heads / a.kv_heads;  // the smallest tile that holds the group; beyond 8 several tiles
      if (group == 1) return grouped<1>();
      if (group == 2) return grouped<2>();
      if (group <= 4) return grouped<4>();
      return grouped<8>();
    }
    return BAD_RUNG;
  }

  template <int G> int grouped() const {
    unsigned tiles = a.kv_heads * blocks(a.heads / a.kv_heads, G);
    dim3 by_group(a.tokens, tiles), by_part(a.tokens, tiles, a.parts);
    Parts parts{a.part_acc, reinterpret_cast<float2*>(a.part_state), a.parts};
    int error = BAD_RUNG;
    if (a.rung == 5) return launch("k5_group", by_group, warps, 0, stream, k5_group<T, D, G>, out, rows, kv);
    if (a.rung == 6) error = launch("k6_split", by_part, warps, 0, stream, k6_split<T, D, G>, parts, rows, kv);
#ifdef __CUDACC__
    unsigned ring = sizeof(Ring<T, D, G>);
    if (a.rung == 7) error = launch("k7_async", by_part, warps, ring, stream, k7_async<T, D, G>, parts, rows, kv);
#endif
    return error ? error : launch("k6_merge", by_head, dim3(D / 4), 0, stream, k6_merge<T, D>, out, parts, rows);
  }
};

inline bool is_known(int rung) {
#ifdef __CUDACC__
  return rung >= 1 && rung <= 7;
#else
  return rung >= 1 && rung <= 6;
#endif
}

extern "C" {
// Both return 0, a Refusal, or CUDA_ERROR + cudaError_t; `stream` is a cudaStream_t. They wait for nothing.
int minibatch_paged_attention(const AttentionArguments* a, void* stream) {
  if (!is_known(a->rung)) return BAD_RUNG;
  if (a->kv_heads < 1 || a->heads < 1 || a->heads % a->kv_heads) return BAD_HEADS;
  if (a->block_size < 1 || a->tokens < 0 || a->parts < 1 || a->heads > 65535 || a->parts > 65535) return BAD_SIZE;
  if (int64_t(a->tokens) * a->heads > INT32_MAX) return BAD_SIZE;
  if (a->tokens == 0) return 0;
  OnDevice on(a->device);
  if (on.error) return CUDA_ERROR + on.error;
  int error = Launcher<SCALAR, HEAD_DIM>{*a, static_cast<cudaStream_t>(stream)}.run();
  return error ? CUDA_ERROR + error : 0;
}

int minibatch_cache_write(const WriteArguments* a, void* stream) {
  using T = SCALAR;
  if (a->kv_heads < 1) return BAD_HEADS;
  if (a->block_size < 1 || a->tokens < 0) return BAD_SIZE;
  if (a->tokens == 0) return 0;
  OnDevice on(a->device);
  if (on.error) return CUDA_ERROR + on.error;
  NewKV<T> fresh{static_cast<const T*>(a->k), static_cast<const T*>(a->v), a->slot_mapping, a->k_token, a->k_head,
                 a->v_token, a->v_head};
  PagedKV<T> kv{nullptr, nullptr, nullptr, a->kv_block, a->kv_slot, a->kv_head, a->block_size, a->kv_heads, 0};
  int error = launch("cache_write", dim3(a->tokens), dim3(128), 0, static_cast<cudaStream_t>(stream),
                     cache_write<T, HEAD_DIM>, static_cast<T*>(a->k_cache), static_cast<T*>(a->v_cache), fresh, kv);
  return error ? CUDA_ERROR + error : 0;
}

// For a caller that has to know what a library holds, and what an error is called.
int minibatch_argument_bytes(int of_write) {
  return int(of_write ? sizeof(WriteArguments) : sizeof(AttentionArguments));
}

const char* minibatch_cuda_error(int error) {
#ifdef __CUDACC__
  return cudaGetErrorString(cudaError_t(error));
#else
  (void)error;
  return "no CUDA in this library";
#endif
}
}
