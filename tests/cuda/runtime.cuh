// What test_runtime.py computes on the CPU layer.
#define EACH(name, value)                                        \
  __global__ void name(float* out, const float* in, int*) {      \
    int lane = threadIdx.x % 32;                                 \
    float x = in[threadIdx.x];                                   \
    out[threadIdx.x] = float(value);                             \
    (void)lane, (void)x;                                         \
  }                                                              \
  RUN(name, dim3(1), dim3(64), 0)
EACH(shfl, __shfl_sync(0xffffffffu, x, 5))
EACH(shfl_each, __shfl_sync(0xffffffffu, x, lane * 7))
EACH(shfl_width, __shfl_sync(0xffffffffu, x, 9, 8))
EACH(shfl_up, __shfl_up_sync(0xffffffffu, x, 3))
EACH(shfl_up_width, __shfl_up_sync(0xffffffffu, x, 3, 8))
EACH(shfl_down, __shfl_down_sync(0xffffffffu, x, 3))
EACH(shfl_down_width, __shfl_down_sync(0xffffffffu, x, 3, 8))
EACH(shfl_xor, __shfl_xor_sync(0xffffffffu, x, 5))
EACH(shfl_xor_width, __shfl_xor_sync(0xffffffffu, x, 12, 8))
EACH(shfl_double, __shfl_xor_sync(0xffffffffu, double(x) + 0.25, 1))
EACH(shfl_int64, __shfl_xor_sync(0xffffffffu, (1ll << 40) + lane, 1) - (1ll << 40))
EACH(ballot, __popc(__ballot_sync(0xffffffffu, lane % 3 == 0)))
EACH(any, __any_sync(0xffffffffu, threadIdx.x == 40))
EACH(all, __all_sync(0xffffffffu, threadIdx.x < 40))
EACH(half_ballot, __popc(__ballot_sync(lane < 16 ? 0xffffu : 0xffff0000u, lane % 4 == 0)))
EACH(bits, __popc(0xf0u) + __ffs(8) + __clz(1))
EACH(functions, __expf(0.0f) + __logf(1.0f) + rsqrtf(4.0f) + __fdividef(1.0f, 4.0f) + min(1, 2) + max(3.0f, 2.0f))

__global__ void mixed_masks(float* out, const float* in, int*) {  // lanes 2 and 3 go far ahead of 0 and 1
  int lane = threadIdx.x;
  float x = in[lane];
  if (lane < 4) x = __shfl_xor_sync(0xfu, x, 1);
  if (lane >= 2 && lane < 4) {
    for (int i = 0; i < 5; ++i) x = __shfl_xor_sync(0xcu, x, 1);
  }
  if (lane < 4) x += 10 * __shfl_xor_sync(0xfu, x, 2);
  out[lane] = x;
}
RUN(mixed_masks, dim3(1), dim3(64), 0)

__global__ void block_sum(float* out, const float* in, int*) {  // tree reduction in dynamic shared memory
  extern __shared__ __align__(16) unsigned char smem[];
  float* sum = reinterpret_cast<float*>(smem);
  sum[threadIdx.x] = in[threadIdx.x] + blockIdx.x;
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sum[threadIdx.x] += sum[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sum[0];
}
RUN(block_sum, dim3(64), dim3(64), 64 * sizeof(float))

__global__ void indices(float* out, const float*, int*) {
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[block * 4 + thread] = 100 * blockIdx.x + 10 * blockIdx.y + blockIdx.z + 0.1f * threadIdx.y + 0.01f * threadIdx.z;
}
RUN(indices, dim3(2, 4, 2), dim3(1, 2, 2), 0)

__global__ void atomics(float* out, const float* in, int* count) {
  atomicAdd(&out[0], in[threadIdx.x]);
  atomicMax(count + 1, int(threadIdx.x));
  atomicMin(count + 2, -int(threadIdx.x));
  atomicSub(count + 3, 2);
  atomicExch(count + 4, 7);
  atomicCAS(count + 5, 0, 9);
  atomicAdd(count, 1);
}
RUN(atomics, dim3(4), dim3(64), 0)

__global__ void stuck(float* out, const float* in, int*) {  // half a warp waits for the other, which waits in a barrier
  float x = in[threadIdx.x];
  if (threadIdx.x < 16) x += __shfl_xor_sync(0xffffffffu, x, 8);
  __syncthreads();
  out[threadIdx.x] = x;
}
RUN(stuck, dim3(8), dim3(64), 0)

__global__ void asserts(float*, const float*, int*) { assert(threadIdx.x + blockIdx.x < 68); }
RUN(asserts, dim3(8), dim3(64), 0)

__global__ void order(float* out, const float*, int* count) {  // who comes first, and who comes first after a barrier
  out[blockIdx.x * 64 + threadIdx.x] = atomicAdd(count, 1);
  __syncthreads();
  out[128 + blockIdx.x * 64 + threadIdx.x] = atomicAdd(count, 1);
}
RUN(order, dim3(2), dim3(64), 0)

__global__ void to_half(float* out, const float* in, int*) {
  reinterpret_cast<__half*>(out)[blockIdx.x * 64 + threadIdx.x] = __float2half(in[blockIdx.x * 64 + threadIdx.x]);
}
__global__ void from_half(float* out, const float* in, int*) {
  out[blockIdx.x * 64 + threadIdx.x] = __half2float(reinterpret_cast<const __half*>(in)[blockIdx.x * 64 + threadIdx.x]);
}
__global__ void to_bfloat16(float* out, const float* in, int*) {
  auto* to = reinterpret_cast<__nv_bfloat16*>(out);
  to[blockIdx.x * 64 + threadIdx.x] = __float2bfloat16(in[blockIdx.x * 64 + threadIdx.x]);
}
__global__ void from_bfloat16(float* out, const float* in, int*) {
  auto* from = reinterpret_cast<const __nv_bfloat16*>(in);
  out[blockIdx.x * 64 + threadIdx.x] = __bfloat162float(from[blockIdx.x * 64 + threadIdx.x]);
}
__global__ void pairs(float* out, const float* in, int*) {
  float2 a = __half22float2(__floats2half2_rn(in[threadIdx.x], 2 * in[threadIdx.x]));
  float2 b = __bfloat1622float2(__floats2bfloat162_rn(in[threadIdx.x], 2 * in[threadIdx.x]));
  float4 all = make_float4(a.x, a.y, b.x, b.y);
  reinterpret_cast<float4*>(out)[threadIdx.x] = all;
}
#define ALL(name) RUN(name, dim3(1024), dim3(64), 0)
ALL(to_half) ALL(from_half) ALL(to_bfloat16) ALL(from_bfloat16) RUN(pairs, dim3(1), dim3(16), 0)
