// The way PyTorch's own operators are made: a schema, and an implementation for each kind of device, in C++.
//
// This file is compiled by the host compiler alone and never by nvcc: the kernels are a library beside it, and all it
// knows of them is kernels/arguments.h. With -DWITH_CUDA it serves CUDA tensors, else CPU tensors by the emulator.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "kernels/arguments.h"
#ifdef WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#else
#include "simt/simt_api.h"
#endif

namespace {

using at::Tensor;

void check(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& table, const Tensor& seq_of,
           const Tensor& context_len) {
  TORCH_CHECK_VALUE(q.dim() == 3 && k.dim() == 4 && table.dim() == 2, "q, k and block_table need 3, 4, 2 dimensions");
  TORCH_CHECK_VALUE(q.scalar_type() == at::kFloat && q.size(2) == 64, "this binding is for float32 and head_dim 64");
  TORCH_CHECK_VALUE(k.size(3) == 64 && k.size(2) > 0 && q.size(1) % k.size(2) == 0, "heads of q and k do not fit");
  TORCH_CHECK_VALUE(v.sizes() == k.sizes(), "k is ", k.sizes(), ", v is ", v.sizes(), ": they must be equal");
  TORCH_CHECK_VALUE(seq_of.numel() == q.size(0) && context_len.numel() == q.size(0), "a row and a length a token");
  for (const Tensor* x : {&q, &k, &v, &table, &seq_of, &context_len}) {
    TORCH_CHECK_VALUE(x->is_contiguous() && x->device() == q.device(), "all must be contiguous, and on one device");
  }
  for (const Tensor* x : {&k, &v}) TORCH_CHECK_VALUE(x->scalar_type() == at::kFloat, "k and v must be float32");
  for (const Tensor* x : {&table, &seq_of, &context_len}) {
    TORCH_CHECK_VALUE(x->scalar_type() == at::kInt, "block_table, seq_of and context_len must be int32");
  }
}

// Rung 5: a block for each (token, KV head), no parts.
AttentionArguments arguments(const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& table,
                             const Tensor& seq_of, const Tensor& context_len, double scale) {
  AttentionArguments a{};
  a.out = out.data_ptr(), a.q = q.data_ptr(), a.k = k.data_ptr(), a.v = v.data_ptr();
  a.block_table = table.data_ptr<int>(), a.seq_of = seq_of.data_ptr<int>();
  a.context_len = context_len.data_ptr<int>();
  a.q_token = q.stride(0), a.q_head = q.stride(1);
  a.kv_block = k.stride(0), a.kv_slot = k.stride(1), a.kv_head = k.stride(2);
  a.tokens = int32_t(q.size(0)), a.heads = int32_t(q.size(1)), a.kv_heads = int32_t(k.size(2));
  a.block_size = int32_t(k.size(1)), a.max_blocks = int32_t(table.size(1));
  a.rung = 5, a.parts = 1, a.scale = float(scale);
  a.device = q.is_cuda() ? q.device().index() : 0;
  return a;
}

Tensor paged_attention(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& block_table,
                       const Tensor& seq_of, const Tensor& context_len, double scale) {
  check(q, k_cache, v_cache, block_table, seq_of, context_len);
  Tensor out = at::empty_like(q);
  AttentionArguments a = arguments(out, q, k_cache, v_cache, block_table, seq_of, context_len, scale);
#ifdef WITH_CUDA
  c10::cuda::CUDAGuard guard(q.device());
  int error = minibatch_paged_attention(&a, c10::cuda::getCurrentCUDAStream().stream());  // never the default stream
  TORCH_CHECK(error < 1000, "CUDA: ", minibatch_cuda_error(error - 1000));
#else
  simt_reset(1, 0);
  int error = minibatch_paged_attention(&a, nullptr);
  const simt_report* first = nullptr;
  TORCH_CHECK(simt_reports(&first) == 0, "the emulator stopped a kernel; the checked backend says why");
#endif
  TORCH_CHECK(error == 0, "refused with code ", error, " (kernels/launch.h)");
  return out;
}

}  // namespace

TORCH_LIBRARY(minibatch_binding, library) {
  library.def(
      "paged_attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor seq_of, "
      "Tensor context_len, float scale) -> Tensor");
}

#ifdef WITH_CUDA
TORCH_LIBRARY_IMPL(minibatch_binding, CUDA, library) { library.impl("paged_attention", &paged_attention); }
#else
TORCH_LIBRARY_IMPL(minibatch_binding, CPU, library) { library.impl("paged_attention", &paged_attention); }
#endif
