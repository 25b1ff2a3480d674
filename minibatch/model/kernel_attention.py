"""Attention over paged memory through the handwritten kernels of `minibatch.cuda`. Introduced in notebook 08."""

import os
from collections.abc import Sequence as Rows

import torch

from minibatch.cuda import backends, ops
from minibatch.cuda.arguments import check_kernel
from minibatch.cuda.errors import KernelUnavailable
from minibatch.model.kv_cache import write_places
from minibatch.model.paged_kv import PagedKVCache
from minibatch.step import Chunk

RUNG = 6
NOT_A_BLOCK = -1  # fills block tables up to one width; no context reaches it, so no kernel reads it


def kernel_backend(cache: PagedKVCache) -> str | None:
    """The backend that $MINIBATCH_KERNEL gives this cache: "emulated", "checked" or "cuda", built and ready to run.

    None where the model's own attention in torch is meant: "torch"; and "auto", or nothing, unless the cache is on a
    GPU. Raises KernelUnavailable (what is missing, and what to do), BuildError, and ValueError for an unknown name or a
    cache no kernel takes.
    """
    device, named = cache.k.device, os.environ.get(backends.VARIABLE, "auto")
    if named == "auto" and device.type != "cuda":
        return None
    chosen = backends.choose(named, device)
    if chosen == "torch":
        return None
    lacking = backends.missing(chosen)
    if lacking:
        raise KernelUnavailable(f"{backends.VARIABLE}={named}: {'; '.join(lacking)}")
    head_dim = cache.k.shape[-1]
    check_kernel(RUNG, {"k": cache.k_blocks[0], "v": cache.v_blocks[0]}, head_dim, cache.k.dtype)
    backends.library(chosen, cache.k.dtype, head_dim, device)  # built now, not in the first step
    return chosen


class KernelAttention:
    """Attention for chunks whose tokens lie end to end: two kernels a layer, whatever mixture the chunks are.

    One writes the new K and V to their slots. The other is given each token's row of the block table and how many
    positions it sees: a decode is one token, a prefill chunk is tokens that see one more each.
    """

    def __init__(self, cache: PagedKVCache, chunks: Rows[Chunk], backend: str):
        self.cache, self.backend, self.write_at = cache, backend, write_places(cache, chunks)
        tables = [chunk.sequence.block_table for chunk in chunks]
        longest = max(map(len, tables))
        filled = [[*table, *[NOT_A_BLOCK] * (longest - len(table))] for table in tables]
        seq_of = [row for row, chunk in enumerate(chunks) for _ in range(chunk.count)]
        context_len = [chunk.start + i + 1 for chunk in chunks for i in range(chunk.count)]
        self.where = [torch.tensor(x, dtype=torch.int32, device=cache.k.device) for x in (filled, seq_of, context_len)]

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [T, heads, head_dim], k and v [T, kv_heads, head_dim] -> [T, heads * head_dim]."""
        keys, values = self.cache.k_blocks[layer], self.cache.v_blocks[layer]
        ops.cache_write(k, v, keys, values, self.write_at, self.backend)
        return ops.paged_attention(q, keys, values, *self.where, q.shape[-1] ** -0.5, self.backend, RUNG).flatten(1)
