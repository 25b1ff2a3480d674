// simt.h -- included in place of <cuda_runtime.h> when the kernel is compiled for the CPU.
//
// A CUDA thread becomes a fiber: a stack of its own, run until it has to wait for other threads. A block stays on one
// OS thread from beginning to end. What is offered and what is not: README.md.
#pragma once
#include <cassert>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "types.h"

#if !defined(__linux__)
#error "the CPU SIMT layer needs Linux: its checker reads ELF, and a block lives in thread-local storage"
#endif

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// One OS thread runs one block at a time, so what is local to the OS thread is shared by the block. Dynamic shared
// memory is declared by the kernel, as in CUDA: extern __shared__ __align__(16) unsigned char smem[];
#define __shared__ thread_local

using cudaStream_t = void*;

namespace simt {

constexpr unsigned kWarp = 32, kMaxThreads = 1024, kMaxDynamicShared = 96 * 1024;

struct Indices {  // of the thread that runs now, rewritten at every switch
  uint3 thread, block;
  dim3 block_dim, grid_dim;
};
extern constinit thread_local Indices indices;

#ifdef __clang__  // would turn the calls in both branches of an `if` into one call after it
#define SIMT_MEETING __attribute__((convergent, nomerge))
#else
#define SIMT_MEETING
#endif

// The functions below wait for other threads or report on them; each takes its return address for the source line.
SIMT_MEETING void syncthreads(int line);  // the line says which barrier it is: compilers copy calls
SIMT_MEETING void syncwarp(unsigned mask);
enum class Shuffle { kIndex, kUp, kDown, kXor };
SIMT_MEETING uint64_t shuffle(Shuffle kind, unsigned mask, uint64_t bits, unsigned operand, int width);
enum class Vote { kBallot, kAny, kAll };
SIMT_MEETING unsigned vote(Vote kind, unsigned mask, bool predicate);
using Apply = uint64_t (*)(uint64_t old, void* closure);
uint64_t atomic_update(void* address, unsigned bytes, Apply apply, void* closure);

using Body = void (*)(void* closure);
void run(const char* name, dim3 grid, dim3 block, unsigned dynamic_bytes, Body body, void* closure, size_t bytes);

// Run `kernel()` in every thread of the grid and wait for the end. What went wrong is in simt_reports (simt_api.h).
template <class F>
void launch(const char* name, dim3 grid, dim3 block, unsigned dynamic_bytes, F kernel) {
  run(
      name, grid, block, dynamic_bytes, [](void* closure) { (*static_cast<F*>(closure))(); }, &kernel, sizeof kernel);
}

template <class T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
__forceinline__ T exchange(Shuffle kind, unsigned mask, T value, unsigned operand, int width) {
  return from_bits<T>(shuffle(kind, mask, to_bits(value), operand, width));
}
template <class T, class F>
__forceinline__ T atomic(T* address, F next) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  auto apply = [](uint64_t old, void* f) { return to_bits<T>((*static_cast<F*>(f))(from_bits<T>(old))); };
  return from_bits<T>(atomic_update(address, sizeof(T), apply, &next));
}

}  // namespace simt

#define threadIdx (simt::indices.thread)
#define blockIdx (simt::indices.block)
#define blockDim (simt::indices.block_dim)
#define gridDim (simt::indices.grid_dim)
constexpr int warpSize = simt::kWarp;

__forceinline__ void __syncthreads(int line = __builtin_LINE()) { simt::syncthreads(line); }
__forceinline__ void __syncwarp(unsigned mask = 0xffffffffu) { simt::syncwarp(mask); }
inline void __threadfence() {}  // threads of a block take turns, and another block's data is a race with or without it
inline void __threadfence_block() {}

template <class T>
__forceinline__ T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
  return simt::exchange(simt::Shuffle::kIndex, mask, value, lane, width);
}
template <class T>
__forceinline__ T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  return simt::exchange(simt::Shuffle::kUp, mask, value, delta, width);
}
template <class T>
__forceinline__ T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  return simt::exchange(simt::Shuffle::kDown, mask, value, delta, width);
}
template <class T>
__forceinline__ T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  return simt::exchange(simt::Shuffle::kXor, mask, value, lane_mask, width);
}
__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate) {
  return simt::vote(simt::Vote::kBallot, mask, predicate != 0);
}
__forceinline__ int __any_sync(unsigned mask, int predicate) {
  return simt::vote(simt::Vote::kAny, mask, predicate != 0);
}
__forceinline__ int __all_sync(unsigned mask, int predicate) {
  return simt::vote(simt::Vote::kAll, mask, predicate != 0);
}

template <class T>
__forceinline__ T atomicAdd(T* address, std::type_identity_t<T> value) {
  return simt::atomic(address, [value](T old) { return T(old + value); });
}
template <class T>
__forceinline__ T atomicSub(T* address, std::type_identity_t<T> value) {
  return simt::atomic(address, [value](T old) { return T(old - value); });
}
template <class T>
__forceinline__ T atomicMax(T* address, std::type_identity_t<T> value) {
  return simt::atomic(address, [value](T old) { return old < value ? value : old; });
}
template <class T>
__forceinline__ T atomicMin(T* address, std::type_identity_t<T> value) {
  return simt::atomic(address, [value](T old) { return value < old ? value : old; });
}
template <class T>
__forceinline__ T atomicExch(T* address, std::type_identity_t<T> value) {
  return simt::atomic(address, [value](T) { return value; });
}
template <class T>
__forceinline__ T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return simt::atomic(address, [expected, value](T old) { return old == expected ? value : old; });
}

template <class T>
__forceinline__ T __ldg(const T* address) {
  return *address;
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __clz(int bits) { return bits ? __builtin_clz(bits) : 32; }
template <class T>
__forceinline__ T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
__forceinline__ T max(T a, T b) {
  return a < b ? b : a;
}
