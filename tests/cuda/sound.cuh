// Kernels without a mistake that a careless checker would complain of.
__global__ void warp_barrier(float* out, const float* in, int*) {
  __shared__ float tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncwarp();
  out[threadIdx.x] = tile[threadIdx.x ^ 1];
  __syncwarp();
  tile[threadIdx.x ^ 2] = 0.0f;
}
__global__ void half_warp_barriers(float* out, const float* in, int*) {
  __shared__ float tile[64];
  unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  tile[threadIdx.x] = in[threadIdx.x];
  __syncwarp(half);
  out[threadIdx.x] = tile[threadIdx.x ^ 8];
}
__global__ void handed_on(float* out, const float* in, int*) {  // lane 0 to 1, then 1 to 2: ordered by way of lane 1
  __shared__ float tile[2];
  unsigned lane = threadIdx.x;
  if (lane == 0) tile[0] = in[0];
  if (lane < 2) __syncwarp(0x3);
  if (lane == 1 || lane == 2) __syncwarp(0x6);
  if (lane == 2) tile[0] = in[1];
  out[threadIdx.x] = 0.0f;
}
__global__ void atomics(float* out, const float*, int* count) {
  atomicAdd(count, 1);
  atomicMax(count, int(threadIdx.x));
  out[blockIdx.x * blockDim.x + threadIdx.x] = 0.0f;
}
__global__ void halves_of_a_word(float* out, const float*, int*) {
  __shared__ char letters[64];
  letters[threadIdx.x] = char(threadIdx.x);
  out[threadIdx.x] = letters[threadIdx.x];
}
__global__ void two_barriers_in_a_loop(float* out, const float* in, int*) {
  __shared__ float tile[64];
  float sum = 0.0f;
  for (int i = 0; i < 3; ++i) {
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    sum += tile[63 - threadIdx.x];
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}
__global__ void block_returns_early(float* out, const float*, int*) {
  __shared__ float tile[64];
  if (blockIdx.x == 1) return;
  tile[threadIdx.x] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void shared_again_in_each_block(float* out, const float* in, int*) {
  __shared__ float tile[32];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = tile[31 - threadIdx.x];
}
__global__ void returned_lanes_are_not_waited_for(float* out, const float* in, int*) {
  out[threadIdx.x] = 0.0f;
  if (threadIdx.x % 32 >= 16) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, in[threadIdx.x], 8);
}
__global__ void helper_with_barrier(float* out, const float* in, int*) {
  __shared__ float tile[64];
  auto share = [&](float x) {
    tile[threadIdx.x] = x;
    __syncthreads();
  };
  if (in[0] == 0.0f) share(1.0f); else share(2.0f);
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
__global__ void halves(float* out, const float* in, int*) {
  reinterpret_cast<__half*>(out)[threadIdx.x] = __float2half(in[threadIdx.x]);
}
__constant__ float kTable[4] = {1, 2, 3, 4};
struct Pair { float a, b; };
__global__ void constants_and_locals(float* out, const float* in, int*) {
  Pair pair{in[0], kTable[threadIdx.x % 4]};
  float mine[8];
  for (int i = 0; i < 8; ++i) mine[i] = pair.a + i;
  out[threadIdx.x] = mine[threadIdx.x % 8] + pair.b;
}
__global__ void first_launch(float* out, const float* in, int*) { out[threadIdx.x] = in[threadIdx.x]; }
__global__ void second_launch(float* out, const float*, int*) { out[63 - threadIdx.x] += 1.0f; }
extern "C" void run_two_launches(float* out, const float* in, int* count) {
  launch("first", dim3(1), dim3(64), 0, nullptr, first_launch, out, in, count);
  launch("second", dim3(1), dim3(64), 0, nullptr, second_launch, out, in, count);
}
extern "C" void run_halves(float* out, const float* in, int* count) {
  launch("halves", dim3(1), dim3(64), 0, nullptr, halves, out, in, count);
}
extern "C" void run_halves_twice(float* out, const float* in, int* count) {
  launch("halves", dim3(2), dim3(64), 0, nullptr, halves, out, in, count);
}
#define RUN64(kernel) RUN(kernel, dim3(1), dim3(64), 0)
RUN64(warp_barrier) RUN64(half_warp_barriers) RUN64(halves_of_a_word) RUN64(two_barriers_in_a_loop)
RUN64(returned_lanes_are_not_waited_for) RUN64(helper_with_barrier) RUN64(constants_and_locals)
RUN(handed_on, dim3(1), dim3(32), 0)
RUN(atomics, dim3(2), dim3(32), 0)
RUN(block_returns_early, dim3(2), dim3(64), 0)
RUN(shared_again_in_each_block, dim3(2), dim3(32), 0)
