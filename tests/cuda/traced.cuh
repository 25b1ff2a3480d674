// Kernels whose requests to memory can be counted by hand. Most are one warp.
__global__ void neighbours(float* out, const float* in, int*) {
  out[threadIdx.x] = in[threadIdx.x];  // neighbours
}
__global__ void strided(float* out, const float* in, int*) {
  out[threadIdx.x] = in[threadIdx.x * 8];  // strided
}
__global__ void one_for_all(float* out, const float* in, int*) {
  out[threadIdx.x] = in[5];  // one_for_all
}
__global__ void shifted(float* out, const float* in, int*) {
  out[threadIdx.x] = in[threadIdx.x + 1];  // shifted
}
__global__ void vectors(float* out, const float* in, int*) {
  float4 v = __ldg(reinterpret_cast<const float4*>(in) + threadIdx.x);  // vectors
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
__global__ void half_the_lanes(float* out, const float* in, int*) {
  if (threadIdx.x % 2) out[threadIdx.x] = in[threadIdx.x];  // half_the_lanes
}
__global__ void in_a_loop(float* out, const float* in, int*) {
  float sum = 0.0f;
  for (int i = 0; i < 3; ++i) sum += in[i * 32 + threadIdx.x];  // in_a_loop
  out[threadIdx.x] = sum;
}
template <int STRIDE>
__device__ __forceinline__ void columns(float* out, const float* in) {
  __shared__ float tile[32 * STRIDE];
  tile[threadIdx.x * STRIDE] = in[threadIdx.x];  // columns
  __syncwarp();
  out[threadIdx.x] = tile[0];  // everybody the same word
}
__global__ void columns1(float* out, const float* in, int*) { columns<1>(out, in); }
__global__ void columns2(float* out, const float* in, int*) { columns<2>(out, in); }
__global__ void columns3(float* out, const float* in, int*) { columns<3>(out, in); }
__global__ void columns8(float* out, const float* in, int*) { columns<8>(out, in); }
__global__ void columns32(float* out, const float* in, int*) { columns<32>(out, in); }
__global__ void shared_vectors(float* out, const float* in, int*) {
  __shared__ float4 tile[64];
  auto* vectors = reinterpret_cast<const float4*>(in);
  tile[threadIdx.x] = vectors[threadIdx.x];  // side_by_side
  __syncwarp();
  tile[threadIdx.x * 2] = vectors[threadIdx.x];  // every_second
  out[threadIdx.x] = tile[threadIdx.x * 2].x;
}
__global__ void counted(float*, const float*, int* count) { atomicAdd(count, 1); }  // counted
__global__ void blocks_of_a_cache(float* out, const float* in, int*) {  // block b reads cache block b / 2 and the last
  float sum = in[blockIdx.x / 2 * 32 + threadIdx.x];
  sum += in[7 * 32 + threadIdx.x / 2];
  __syncwarp();  // else the compiler reads once
  sum += in[7 * 32 + threadIdx.x / 2];
  out[blockIdx.x * 32 + threadIdx.x] = sum;
}
#define ONE_WARP(kernel) RUN(kernel, dim3(1), dim3(32), 0)
ONE_WARP(neighbours) ONE_WARP(strided) ONE_WARP(one_for_all) ONE_WARP(shifted) ONE_WARP(vectors)
ONE_WARP(half_the_lanes) ONE_WARP(in_a_loop) ONE_WARP(columns1) ONE_WARP(columns2) ONE_WARP(columns3)
ONE_WARP(columns8) ONE_WARP(columns32) ONE_WARP(shared_vectors) ONE_WARP(counted)
RUN(blocks_of_a_cache, dim3(4), dim3(32), 0)
