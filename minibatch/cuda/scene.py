"""Small paged caches to try a kernel on, the same on every machine, and the truth in float64."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

LENGTHS = (1, 5, 16, 33, 100, 130)  # below, at and above the border of a block of 16; and more than two parts
SPARE_BLOCKS = 3  # that nobody owns


@dataclass(frozen=True)
class Scene:
    """Arguments of `ops.paged_attention`, in its order."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    seq_of: torch.Tensor
    context_len: torch.Tensor
    scale: float

    @property
    def arguments(self) -> tuple:
        return tuple(vars(self).values())

    @property
    def kv_bytes(self) -> int:
        """What there is to read: K and V of all positions that some sequence's last token sees, once each."""
        longest = torch.zeros(len(self.block_table), dtype=torch.int64, device=self.q.device)
        longest.scatter_reduce_(0, self.seq_of.long(), self.context_len.long(), "amax")
        return 2 * int(longest.sum()) * self.k_cache[0, 0].nbytes

    def to(self, device: torch.device | str) -> "Scene":
        return Scene(*(x.to(device) for x in self.arguments[:-1]), self.scale)

    def truth(self, tokens: Iterable[int] | None = None) -> torch.Tensor:
        """Attention in float64: the softmax of all scores at once, token by token. [tokens, heads, head_dim], for the
        `tokens` asked for, or all."""
        size, group = self.k_cache.shape[1], self.q.shape[1] // self.k_cache.shape[2]
        rows = []
        for token in range(len(self.q)) if tokens is None else tokens:
            position = torch.arange(int(self.context_len[token]), device=self.q.device)
            block = self.block_table[int(self.seq_of[token])].long()[position // size]
            k, v = (cache[block, position % size].double() for cache in (self.k_cache, self.v_cache))
            grouped = self.q[token].double().unflatten(0, (-1, group))  # [kv_heads, group, head_dim]
            weights = (torch.einsum("kgd,ckd->kgc", grouped, k) * self.scale).softmax(-1)
            rows.append(torch.einsum("kgc,ckd->kgd", weights, v).flatten(0, 1))
        return torch.stack(rows)


def make_scene(
    lengths: Sequence[int] = LENGTHS,
    heads: int = 8,
    kv_heads: int = 2,
    head_dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    chunk: int = 1,
) -> Scene:
    """Sequences of these lengths; the last `chunk` positions of each are its query tokens (one, and an empty row, for a
    length of 0).

    Blocks lie in a shuffled order. Slots that no context reaches, and the block that unused table entries name, hold
    NaN: a kernel that reads them shows it.
    """
    if not lengths or min(lengths) < 0 or chunk < 1 or block_size < 1:
        raise ValueError(f"lengths={lengths!r}, chunk={chunk}, block_size={block_size}: at least 0, 1 and 1")
    need = [-(-length // block_size) for length in lengths]
    order = numbers((sum(need) + SPARE_BLOCKS,), seed=1).argsort().tolist()
    shape = (len(order), block_size, kv_heads, head_dim)
    caches = [torch.full(shape, torch.nan, dtype=dtype) for _ in "kv"]
    block_table = torch.full((len(lengths), max(need) + 1), order.pop(), dtype=torch.int32)
    seq_of, context_len = [], []
    for seq, length in enumerate(lengths):
        blocks = torch.tensor([order.pop() for _ in range(need[seq])], dtype=torch.int32)
        block_table[seq, : len(blocks)] = blocks
        position = torch.arange(length)
        for which, cache in enumerate(caches):
            values = numbers((length, kv_heads, head_dim), seed=10 + 2 * seq + which)
            cache[blocks.long()[position // block_size], position % block_size] = values.to(dtype)
        tokens = min(chunk, max(length, 1))
        seq_of += [seq] * tokens
        context_len += range(length - tokens + 1, length + 1) if length else [0]
    q = numbers((len(seq_of), heads, head_dim), seed=2).to(dtype)
    rows = [torch.tensor(row, dtype=torch.int32) for row in (seq_of, context_len)]
    return Scene(q, *caches, block_table, *rows, head_dim**-0.5)


def numbers(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Numbers of mean 0 and variance 1, float64, the same on every machine and in every version of torch."""
    count = int(torch.Size(shape).numel())
    x = torch.arange(count) + seed * 7_919 + 1
    for _ in range(3):  # a linear congruential step and a shift, in 31 bits
        x = (x * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        x = x ^ (x >> 15)
    return ((x / 2**30 - 1) * 3**0.5).view(shape)


def allowed(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """How far a kernel may be from float64: sums in float32, then rounded once to its type."""
    return 4e-6 + 0.51 * torch.finfo(dtype).eps * truth.abs()
