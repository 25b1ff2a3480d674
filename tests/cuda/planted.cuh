// Kernels with one mistake each, for 64 threads and arrays of 64. The line at fault ends in a comment with the name of
// its kernel.
__global__ void past_the_end(float* out, const float* in, int*) {
  out[threadIdx.x] = in[threadIdx.x + 1];  // past_the_end
}
__global__ void before_the_start(float* out, const float*, int*) {
  out[int(threadIdx.x) - 1] = 1.0f;  // before_the_start
}
__global__ void far_away(float* out, const float* in, int*) {
  out[threadIdx.x] = in[1ll << 33];  // far_away
}
__global__ void null_pointer(float* out, const float* in, int*) {
  auto* nothing = reinterpret_cast<const float*>(size_t(in[0]));
  out[threadIdx.x] = *nothing;  // null_pointer
}
__global__ void never_written(float* out, const float*, int*) {
  out[threadIdx.x] += 1.0f;  // never_written
}
__global__ void half_of_shared_written(float* out, const float* in, int*) {
  __shared__ float tile[64];
  if (threadIdx.x < 32) tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];  // half_of_shared_written
}
__global__ void missing_barrier(float* out, const float* in, int*) {
  __shared__ float tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = tile[63 - threadIdx.x];  // missing_barrier
}
__global__ void missing_second_barrier(float* out, const float* in, int*) {
  __shared__ float tile[64];
  float sum = 0.0f;
  for (int i = 0; i < 2; ++i) {
    tile[threadIdx.x] = in[threadIdx.x] + i;  // missing_second_barrier
    __syncthreads();
    sum += tile[63 - threadIdx.x];
  }
  out[threadIdx.x] = sum;
}
__global__ void last_reader_writes(float* out, const float* in, int*) {
  __shared__ float one;
  if (threadIdx.x == 0) one = in[0];
  __syncthreads();
  out[threadIdx.x] = one;
  if (threadIdx.x == 63) one = 1.0f;  // last_reader_writes
}
__global__ void warp_barrier_between_warps(float* out, const float* in, int*) {
  __shared__ float tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  __syncwarp();
  out[threadIdx.x] = tile[63 - threadIdx.x];  // warp_barrier_between_warps
}
__global__ void half_warp_barrier(float* out, const float* in, int*) {
  __shared__ float tile[64];
  unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  tile[threadIdx.x] = in[threadIdx.x];
  __syncwarp(half);
  out[threadIdx.x] = tile[threadIdx.x ^ 31];  // half_warp_barrier
}
__global__ void shuffle_is_no_barrier(float* out, const float* in, int*) {
  __shared__ float tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  float other = __shfl_xor_sync(0xffffffffu, in[threadIdx.x], 1);
  out[threadIdx.x] = other + tile[threadIdx.x ^ 1];  // shuffle_is_no_barrier
}
__global__ void two_blocks_one_place(float* out, const float* in, int*) {
  out[threadIdx.x] = in[threadIdx.x] + blockIdx.x;  // two_blocks_one_place
}
__global__ void block_reads_other_block(float* out, const float*, int*) {
  if (blockIdx.x == 0) out[threadIdx.x] = 1.0f;
  if (blockIdx.x == 1) out[threadIdx.x + 32] = out[threadIdx.x];  // block_reads_other_block
}
__global__ void plain_beside_atomic(float* out, const float*, int* count) {
  atomicAdd(count, 1);
  out[threadIdx.x] = *count;  // plain_beside_atomic
}
__global__ void two_barriers(float* out, const float*, int*) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    out[threadIdx.x] = 1.0f;
    __syncthreads();  // two_barriers
  }
}
__global__ void return_before_barrier(float* out, const float* in, int*) {
  if (threadIdx.x >= 40) return;
  out[threadIdx.x] = in[threadIdx.x];
  __syncthreads();  // return_before_barrier
}
__global__ void half_a_warp_shuffles(float* out, const float* in, int*) {
  float x = in[threadIdx.x];
  if (threadIdx.x < 16) x += __shfl_xor_sync(0xffffffffu, x, 8);  // half_a_warp_shuffles
  __syncthreads();
  out[threadIdx.x] = x;
}
__global__ void different_warp_functions(float* out, const float* in, int*) {
  float x = in[threadIdx.x];
  if (threadIdx.x % 2) {
    x = __shfl_xor_sync(0xffffffffu, x, 2);
  } else {
    x = __any_sync(0xffffffffu, x > 0.0f);  // different_warp_functions
  }
  out[threadIdx.x] = x;
}
__global__ void not_in_own_mask(float* out, const float* in, int*) {
  out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, in[threadIdx.x], 1);  // not_in_own_mask
}
__global__ void reads_lane_outside_mask(float* out, const float* in, int*) {
  unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  out[threadIdx.x] = __shfl_xor_sync(half, in[threadIdx.x], 16);  // reads_lane_outside_mask
}
__global__ void shared_index(float* out, const float* in, int*) {
  __shared__ float tile[48];
  tile[threadIdx.x] = in[threadIdx.x];  // shared_index
  __syncthreads();
  out[threadIdx.x] = tile[0];
}
__global__ void local_index(float* out, const float* in, int*) {
  float mine[4] = {};
  for (int i = 0; i <= int(in[4]); ++i) mine[i] = in[i];  // local_index
  out[threadIdx.x] = mine[int(in[3])];
}
__global__ void dynamic_shared(float* out, const float* in, int*) {
  extern __shared__ float scratch[];
  scratch[threadIdx.x] = in[threadIdx.x];  // dynamic_shared
  out[threadIdx.x] = 0.0f;
}
__global__ void vector_over_the_end(float* out, const float* in, int*) {
  __shared__ __align__(16) float tile[62];
  if (threadIdx.x < 62) tile[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  float4 v = reinterpret_cast<const float4*>(tile)[threadIdx.x / 4];  // vector_over_the_end
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
__global__ void writes_its_input(float*, const float* in, int*) {
  const_cast<float*>(in)[threadIdx.x] = 0.0f;  // writes_its_input
}
__global__ void misaligned_vector(float* out, const float* in, int*) {
  uint4 bits = *reinterpret_cast<const uint4*>(in + threadIdx.x % 2);  // misaligned_vector
  out[threadIdx.x] = bits.x + bits.y + bits.z + bits.w;
}
__global__ void spins(float* out, const float*, int* count) {
  while (*reinterpret_cast<volatile int*>(count) == 0) {  // spins
  }
  out[threadIdx.x] = 1.0f;
}
__global__ void asserts(float* out, const float* in, int*) {
  assert(in[threadIdx.x] < 40);  // asserts
  out[threadIdx.x] = 1.0f;
}
__global__ void large_local_array(float* out, const float* in, int*) {  // large_local_array
  volatile float mine[60000];
  mine[int(in[threadIdx.x])] = 1.0f;
  out[threadIdx.x] = mine[threadIdx.x];
}
__global__ void too_many_threads(float*, const float*, int*) {}
__device__ __forceinline__ float neighbour(const float* row) { return row[threadIdx.x + 1]; }  // in_a_function
__global__ void in_a_function(float* out, const float* in, int*) {
  out[threadIdx.x] = neighbour(in);
}
#define RUN64(kernel) RUN(kernel, dim3(1), dim3(64), 0)
RUN64(past_the_end) RUN64(before_the_start) RUN64(far_away) RUN64(null_pointer) RUN64(never_written)
RUN64(half_of_shared_written) RUN64(missing_barrier) RUN64(missing_second_barrier) RUN64(last_reader_writes)
RUN64(warp_barrier_between_warps) RUN64(vector_over_the_end)
RUN64(half_warp_barrier) RUN64(shuffle_is_no_barrier) RUN64(plain_beside_atomic) RUN64(two_barriers)
RUN64(return_before_barrier) RUN64(half_a_warp_shuffles) RUN64(different_warp_functions) RUN64(not_in_own_mask)
RUN64(reads_lane_outside_mask) RUN64(shared_index) RUN64(local_index) RUN64(writes_its_input)
RUN64(misaligned_vector) RUN64(spins) RUN64(asserts) RUN64(large_local_array) RUN64(in_a_function)
RUN(two_blocks_one_place, dim3(2), dim3(64), 0)
RUN(block_reads_other_block, dim3(2), dim3(32), 0)
RUN(dynamic_shared, dim3(1), dim3(64), 48 * sizeof(float))
RUN(too_many_threads, dim3(1), dim3(32, 64), 0)
