// types.h -- the CUDA types a kernel uses: indices, vectors, half and bfloat16.
#pragma once
#include <cstdint>
#include <cstring>
#include <initializer_list>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

// Aligned to their size, as on the GPU: one load of a whole vector faults unless its address is a multiple of it.
#if defined(__clang__)
#define SIMT_INSTRUMENTED_BY_CLANG __has_feature(thread_sanitizer)
#else
#define SIMT_INSTRUMENTED_BY_CLANG 0
#endif
#if SIMT_INSTRUMENTED_BY_CLANG
// clang splits the load of a struct into loads of its members; by way of a volatile vector it stays one access.
#define SIMT_VECTOR(name, T, count, ...)                                                 \
  struct alignas(count * sizeof(T)) name {                                               \
    typedef T Whole __attribute__((vector_size(count * sizeof(T))));                     \
    T __VA_ARGS__;                                                                       \
    name() = default;                                                                    \
    name(std::initializer_list<T> members) {                                             \
      std::memset(this, 0, sizeof *this);                                                \
      std::memcpy(this, members.begin(), members.size() * sizeof(T));                    \
    }                                                                                    \
    name(const name& from) { *this = from; }                                             \
    name& operator=(const name& from) {                                                  \
      *reinterpret_cast<Whole*>(this) = *reinterpret_cast<const volatile Whole*>(&from); \
      return *this;                                                                      \
    }                                                                                    \
  }
#else
#define SIMT_VECTOR(name, T, count, ...)   \
  struct alignas(count * sizeof(T)) name { \
    T __VA_ARGS__;                         \
  }
#endif
SIMT_VECTOR(float2, float, 2, x, y);
SIMT_VECTOR(float4, float, 4, x, y, z, w);
SIMT_VECTOR(int2, int, 2, x, y);
SIMT_VECTOR(int4, int, 4, x, y, z, w);
SIMT_VECTOR(uint2, unsigned, 2, x, y);
SIMT_VECTOR(uint4, unsigned, 4, x, y, z, w);

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

// Written out because _Float16 is missing in clang 14 and in g++ 12 on ARM.
struct __half {
  uint16_t bits;
};
struct __nv_bfloat16 {
  uint16_t bits;
};
using half = __half;
using nv_bfloat16 = __nv_bfloat16;

inline float __half2float(__half h) {
  uint32_t sign = uint32_t(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31, fraction = h.bits & 1023;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);  // infinity and NaN
  if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
  return __uint_as_float(sign | __float_as_uint(float(fraction) * 0x1p-24f));  // zero and subnormal
}

inline __half __float2half(float value) {  // to nearest, ties to even
  uint32_t bits = __float_as_uint(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return {uint16_t(sign | 0x7e00)};   // NaN
  if (size >= 0x477ff000u) return {uint16_t(sign | 0x7c00)};  // rounds to 65536 or beyond: infinity
  if (size < 0x38800000u) {                                   // subnormal: the float addition of 0.5 does the rounding
    return {uint16_t(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u))};
  }
  return {uint16_t(sign | (size - 0x38000000u + 0xfff + (size >> 13 & 1)) >> 13)};
}
inline __half __float2half_rn(float value) { return __float2half(value); }

inline float __bfloat162float(__nv_bfloat16 b) { return __uint_as_float(uint32_t(b.bits) << 16); }

inline __nv_bfloat16 __float2bfloat16(float value) {  // to nearest, ties to even
  uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {uint16_t(bits >> 16 | 0x40)};  // keep a NaN a NaN
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __float2bfloat16(value); }

struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float2 __half22float2(__half2 pair) { return {__half2float(pair.x), __half2float(pair.y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 pair) { return {__bfloat162float(pair.x), __bfloat162float(pair.y)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half(x), __float2half(y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16(x), __float2bfloat16(y)}; }
