"""The tensors of paged memory: blocks here, blocks in host memory, and attention by the textbook over a block table.

Source: PagedAttention (Kwon et al., SOSP 2023, section 4.1). Introduced in notebook 06. What runs is the attention of
`kv_cache`, which asks this cache where positions lie; `TokenByToken` is what it is tested against.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Rows

import torch

from minibatch.model.config import ModelConfig
from minibatch.model.kv_cache import KVCache
from minibatch.request import Sequence
from minibatch.step import Chunk, Move


class PagedKVCache(KVCache):
    """K and V in blocks: position p of a sequence lies in block_table[p // block_size], at offset p % block_size.

    `k_blocks` and `v_blocks` [layers, num_blocks, block_size, kv_heads, head_dim] are the memory of `k` and `v`
    [layers, positions, kv_heads, head_dim] seen in blocks; `host_k` and `host_v` are `host_blocks` more in host memory.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_positions: int,
        dtype: torch.dtype,
        device: torch.device,
        block_size: int,
        host_blocks: int = 0,
    ):
        if num_positions % block_size:
            raise ValueError(f"num_positions={num_positions}: must be whole blocks of block_size={block_size}")
        super().__init__(config, num_positions, dtype, device)
        self.block_size = block_size
        self.k_blocks, self.v_blocks = (tensor.unflatten(1, (-1, block_size)) for tensor in (self.k, self.v))
        host = (config.num_layers, host_blocks, *self.k_blocks.shape[2:])
        self.host_k, self.host_v = torch.empty(host, dtype=dtype), torch.empty(host, dtype=dtype)

    def apply(self, moves: Iterable[Move]) -> None:
        """Copy whole blocks, all layers of each, in this order: a block moved out may be the target of a later move."""
        for kind, source, target in moves:
            for here, host in ((self.k_blocks, self.host_k), (self.v_blocks, self.host_v)):
                origin, goal = {"copy": (here, here), "out": (here, host), "in": (host, here)}[kind]
                goal[:, target] = origin[:, source]

    def order(self, rows: Rows[Chunk]) -> list[Chunk]:
        """As they come: blocks lie anywhere."""
        return list(rows)

    def places(self, sequences: Rows[Sequence], row: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """The slot mapping: where each `position` of sequences[row] lies. int64 all, shapes broadcast together."""
        tables, beyond = [sequence.block_table for sequence in sequences], len(self.k_blocks[0])
        longest = max(map(len, tables))
        # Filled up with a block that does not exist: to look there would raise, not read another's K and V.
        filled = torch.tensor([table + [beyond] * (longest - len(table)) for table in tables], device=self.k.device)
        return filled[row, position // self.block_size] * self.block_size + position % self.block_size

    def context(self, chunk: Chunk) -> torch.Tensor:
        """The places of all that a chunk's last token sees, itself included: int64 [context]."""
        positions = torch.arange(chunk.start + chunk.count, device=self.k.device)
        return self.places([chunk.sequence], torch.zeros_like(positions), positions)

    def stride(self, sequences: Rows[Sequence], longest: int) -> int:
        """Blocks lie at no fixed distance: contexts are gathered, position by position."""
        return 0


class TokenByToken:
    """Attention for chunks laid end to end, a token at a time: slow, easy to believe, the oracle of the fast one."""

    def __init__(self, cache: PagedKVCache, chunks: Rows[Chunk]):
        self.cache, self.chunks = cache, chunks

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [T, heads, head_dim], k and v [T, kv_heads, head_dim] -> [T, heads * head_dim]."""
        keys, values, size = self.cache.k_blocks[layer], self.cache.v_blocks[layer], self.cache.block_size
        out, token = torch.empty_like(q), 0
        for chunk in self.chunks:
            table = chunk.sequence.block_table
            for position in range(chunk.start, chunk.start + chunk.count):
                block, offset = table[position // size], position % size
                keys[block, offset], values[block, offset] = k[token], v[token]
                out[token] = attention_over_blocks(q[token], keys, values, table, position + 1)
                token += 1
        return out.flatten(1)


def attention_over_blocks(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, block_table: Rows[int], context: int
) -> torch.Tensor:
    """One token's q [heads, head_dim] over the first `context` positions of a sequence. Returns [heads, head_dim].

    keys, values [num_blocks, block_size, kv_heads, head_dim] are a whole pool; only the blocks of the table are read,
    and of the last one only what was written. Each group of heads // kv_heads query heads reads one KV head.
    """
    size, group = keys.shape[1], len(q) // keys.shape[2]
    places = [(block_table[position // size], position % size) for position in range(context)]
    k = torch.stack([keys[block, offset] for block, offset in places])  # [context, kv_heads, head_dim]
    v = torch.stack([values[block, offset] for block, offset in places])
    out = torch.empty_like(q)
    for head in range(len(q)):
        scores = k[:, head // group] @ q[head] / q.shape[-1] ** 0.5  # [context]
        out[head] = scores.softmax(dim=0) @ v[:, head // group]
    return out
