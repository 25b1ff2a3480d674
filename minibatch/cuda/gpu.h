// The only file that knows which compiler is at work: nvcc for a GPU, g++ or clang++ over the layer in simt/ for a CPU.
#pragma once

#ifdef __CUDACC__
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "simt/simt.h"
#endif

// Start a kernel: `kernel<<<grid, block, dynamic_bytes, stream>>>(arguments...)` in words both compilers understand.
// `dynamic_bytes` is the size of `extern __shared__`. Returns 0, or the cudaError_t of this launch.
template <class... Parameters, class... Arguments>
int launch(const char* name, dim3 grid, dim3 block, unsigned dynamic_bytes, cudaStream_t stream,
           void (*kernel)(Parameters...), Arguments... arguments) {
#ifdef __CUDACC__
  (void)name;
  if (dynamic_bytes > 48 * 1024) {  // above this a kernel has to ask
    cudaError_t refused =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(dynamic_bytes));
    if (refused != cudaSuccess) return int(refused);
  }
  kernel<<<grid, block, dynamic_bytes, stream>>>(Parameters(arguments)...);
  return int(cudaGetLastError());
#else
  (void)stream;
  simt::launch(name, grid, block, dynamic_bytes, [=] { kernel(Parameters(arguments)...); });
  return 0;
#endif
}
