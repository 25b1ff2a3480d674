"""The operators minibatch::paged_attention and minibatch::cache_write. Importing this module builds nothing.

    from minibatch.cuda import ops

    ops.cache_write(k, v, k_cache, v_cache, slot_mapping)
    out = ops.paged_attention(q, k_cache, v_cache, block_table, seq_of, context_len, scale=head_dim**-0.5)

`backend`: "torch" (plain torch, any device), "emulated" (the CUDA kernels on the CPU), "checked" (the same, and every
access is checked), "cuda" (the kernels on a GPU), "auto" (see `backends.choose`).
"""

import torch

from minibatch.cuda import oracle
from minibatch.cuda.arguments import check_attention, check_kernel, check_write
from minibatch.cuda.backends import choose, library
from minibatch.cuda.simulated import Run

PART = 256  # positions that are worth a block of their own, in rungs 6 and 7
BLOCKS_PER_SM = 16  # of work: four that run, four times over, so that unequal contexts even out
EMULATED_SMS = 132  # of an H100


@torch.library.custom_op("minibatch::paged_attention", mutates_args=())
def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_of: torch.Tensor,
    context_len: torch.Tensor,
    scale: float,
    backend: str = "auto",
    rung: int = 6,
    parts: int = 0,
) -> torch.Tensor:
    """Attention of query tokens over a paged cache: decodes, prefill chunks or any mixture, laid end to end.

    q            [tokens, heads, head_dim]: float32, float16 or bfloat16
    k_cache,
    v_cache      [num_blocks, block_size, kv_heads, head_dim]: of the type of q, both with the same strides
    block_table  [num_seqs, max_blocks] int32: position p of a sequence lies in block p // block_size of its row
    seq_of       [tokens] int32: the row of a token's sequence
    context_len  [tokens] int32: how many positions the token sees, itself included; 0 is an empty row and gives zeros
    rung         which kernel of the ladder, 1 to 7; `parts` into how many rungs 6 and 7 cut a context, 0: as fits

    Query head h reads KV head h // (heads // kv_heads). Entries of the table and slots of the caches that no context
    reaches are never read. Views are taken if the last dimension has no gaps; from rung 4 on rows must start at
    multiples of 16 bytes. On a GPU it runs on the current stream of q's device, and table entries, rows and lengths are
    not checked, which would wait for the GPU.

    Returns [tokens, heads, head_dim], contiguous. Raises ValueError for what does not fit, KernelUnavailable for what
    the machine lacks, BuildError, LaunchError, and KernelFault for what the checker finds.
    """
    check_attention(q, k_cache, v_cache, block_table, seq_of, context_len)
    chosen = choose(backend, q.device)
    if chosen == "torch":
        return oracle.paged_attention(q, k_cache, v_cache, block_table, seq_of, context_len, scale)
    check_kernel(rung, {"q": q, "k_cache": k_cache, "v_cache": v_cache}, q.shape[2], q.dtype)
    if parts == 0:
        rung, parts = _split(rung, q, k_cache, block_table)
    kernels = library(chosen, q.dtype, q.shape[2], q.device)
    tensors = (q, k_cache, v_cache, block_table, seq_of, context_len)
    return kernels.attention(*tensors, scale, rung, parts, Run(threads=torch.get_num_threads()))


@paged_attention.register_fake
def _(q, k_cache, v_cache, block_table, seq_of, context_len, scale, backend="auto", rung=6, parts=0):
    return q.new_empty(q.shape)


@torch.library.custom_op("minibatch::cache_write", mutates_args=("k_cache", "v_cache"))
def cache_write(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    backend: str = "auto",
) -> None:
    """Put k and v [tokens, kv_heads, head_dim] into their slots of k_cache and v_cache (as in `paged_attention`).

    slot_mapping [tokens] int64: slot s is place s % block_size of block s // block_size; -1 skips the token. No slot
    may appear twice. Rows must start at multiples of 16 bytes for a kernel. Errors as in `paged_attention`.
    """
    check_write(k, v, k_cache, v_cache, slot_mapping)
    chosen = choose(backend, k.device)
    if chosen == "torch":
        return oracle.cache_write(k, v, k_cache, v_cache, slot_mapping)
    wide = 4  # it copies as the rungs from 4 on load
    check_kernel(wide, {"k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache}, k.shape[2], k.dtype)
    kernels = library(chosen, k.dtype, k.shape[2], k.device)
    kernels.cache_write(k, v, k_cache, v_cache, slot_mapping, Run(threads=torch.get_num_threads()))


@cache_write.register_fake
def _(k, v, k_cache, v_cache, slot_mapping, backend="auto"):
    return None


def _split(rung: int, q: torch.Tensor, k_cache: torch.Tensor, block_table: torch.Tensor) -> tuple[int, int]:
    """The rung to launch and its parts: as many blocks as keep the GPU busy, none with less than PART positions.

    The table's width stands for the longest context: to ask the tensor would wait for the GPU. Where one part is enough
    rung 6 is rung 5, without the merge.
    """
    if rung < 6:
        return rung, 1
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count if q.is_cuda else EMULATED_SMS
    longest = max(1, block_table.shape[1] * k_cache.shape[1])
    blocks = max(1, q.shape[0] * k_cache.shape[2])
    parts = max(1, min(-(-longest // PART), -(-BLOCKS_PER_SM * sms // blocks), 65535))
    return (5, 1) if rung == 6 and parts == 1 else (rung, parts)
