"""The tensors behind the memory books, and attention over them. Read in notebook 03.

A pool is [positions, kv_heads, head_dim] for each layer, K and V apart. Which of them are a sequence's is for the
cache to say: here a contiguous region of the pool, in `paged_kv` the blocks of a table. Attention asks it.
"""

from collections.abc import Sequence as Rows

import torch
import torch.nn.functional as F

from minibatch.model.config import ModelConfig
from minibatch.model.pages import zeros
from minibatch.request import Sequence
from minibatch.step import Chunk


class KVCache:
    """K and V of `num_positions` tokens, [layers, positions, kv_heads, head_dim] of the model's dtype, in regions."""

    def __init__(self, config: ModelConfig, num_positions: int, dtype: torch.dtype, device: torch.device):
        shape = (config.num_layers, num_positions, config.num_kv_heads, config.head_dim)
        self.k, self.v = zeros(shape, dtype, device), zeros(shape, dtype, device)

    def order(self, rows: Rows[Chunk]) -> list[Chunk]:
        """As their regions lie: then decodes of neighbouring regions are one view of the pool."""
        return sorted(rows, key=lambda row: row.sequence.region.start)

    def places(self, sequences: Rows[Sequence], row: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Where in the pool each `position` of sequences[row] lies. int64 all, of shapes that broadcast together."""
        starts = torch.tensor([sequence.region.start for sequence in sequences], device=self.k.device)
        return starts[row] + position

    def context(self, chunk: Chunk) -> slice | torch.Tensor:
        """What to index the pool with for all that a chunk's last token sees, itself included."""
        start = chunk.sequence.region.start
        return slice(start, start + chunk.start + chunk.count)

    def stride(self, sequences: Rows[Sequence], longest: int) -> int:
        """The distance between regions if it is the same for all, `longest` at least, and inside the pool; else 0."""
        starts = [sequence.region.start for sequence in sequences]
        distances = {b - a for a, b in zip(starts, starts[1:])} or {longest}
        stride = distances.pop()
        fits = stride >= longest and starts[-1] + longest <= self.k.shape[1]
        return stride if fits and not distances else 0


class PackedAttention:
    """Attention for chunks whose tokens lie end to end: write their K and V, then each sequence looks at its own.

    Chunks of one token (decodes) are computed together where `batched` is set, which is faster; one by one
    otherwise, which is easier to read and the test of the other way.
    """

    def __init__(self, cache: KVCache, chunks: Rows[Chunk], batched: bool = True):
        self.cache, self.write_at = cache, write_places(cache, chunks)
        self.each, decodes, offset = [], [], 0  # (first row, last, context); (chunk, its row)
        for chunk in chunks:
            if batched and chunk.count == 1:
                decodes.append((chunk, offset))
            else:
                self.each.append((offset, offset + chunk.count, cache.context(chunk)))
            offset += chunk.count
        self.decode = _Decodes(cache, decodes) if decodes else None

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [T, heads, head_dim], k and v [T, kv_heads, head_dim] -> [T, heads * head_dim]."""
        keys, values = self.cache.k[layer], self.cache.v[layer]
        keys.index_put_((self.write_at,), k)
        values.index_put_((self.write_at,), v)
        if not self.each:
            return self.decode(layer, q)
        out = q.new_empty(q.shape)
        if self.decode:
            out[self.decode.rows] = self.decode(layer, q[self.decode.rows]).view(-1, *q.shape[1:])
        for first, last, context in self.each:
            out[first:last] = attention(q[first:last], keys[context], values[context])
        return out.flatten(1)


class _Decodes:
    """One query token for each of n sequences, their contexts side by side and masked to the longest."""

    def __init__(self, cache: KVCache, decodes: Rows[tuple[Chunk, int]]):
        device, sequences = cache.k.device, [chunk.sequence for chunk, _ in decodes]
        context = torch.tensor([chunk.start + 1 for chunk, _ in decodes], device=device)[:, None]
        self.cache, self.longest = cache, max(chunk.start for chunk, _ in decodes) + 1
        self.rows = torch.tensor([row for _, row in decodes], device=device)
        # Each past its own context reads its own last position again: nobody reads what nobody wrote.
        steps, each = torch.arange(self.longest, device=device), torch.arange(len(decodes), device=device)
        read_at = cache.places(sequences, each[:, None], torch.minimum(steps, context - 1))
        beyond = steps >= context
        mask = torch.zeros(beyond.shape, dtype=cache.k.dtype, device=device).masked_fill(beyond, -torch.inf)
        self.mask = mask[:, None, None]  # [n, 1, 1, longest], added to the scores
        self.read_at, self.first = read_at.flatten(), int(read_at[0, 0])
        self.stride = cache.stride(sequences, self.longest)

    def _context(self, tensor: torch.Tensor) -> torch.Tensor:
        """K or V of one layer as [n, kv_heads, longest, head_dim]: a view if the regions lie at equal distances."""
        if not self.stride:
            return tensor.index_select(0, self.read_at).unflatten(0, (-1, self.longest)).transpose(1, 2)
        step, kv, dim = tensor.stride()
        size = (len(self.rows), tensor.shape[1], self.longest, tensor.shape[2])
        return tensor.as_strided(size, (self.stride * step, kv, step, dim), tensor.storage_offset() + self.first * step)

    def __call__(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        k, v = self._context(self.cache.k[layer]), self._context(self.cache.v[layer])
        n, kv_heads, _, head_dim = k.shape
        # The query heads of a group share K and V, so they are rows of one small product and K is read once.
        grouped = q.view(n, kv_heads, -1, head_dim)
        return F.scaled_dot_product_attention(grouped, k, v, attn_mask=self.mask).reshape(n, -1)


class PaddedAttention:
    """Attention for prompts padded on the right to one rectangle [rows, longest], all starting at position 0.

    A real token sees only what stands before it, so it never sees a pad. Pads are computed (that is their
    price) and not stored.
    """

    def __init__(self, cache: KVCache, chunks: Rows[Chunk]):
        if any(chunk.start for chunk in chunks):
            raise ValueError("a padded step computes whole prompts; a row of this plan starts after position 0")
        self.cache, self.write_at = cache, write_places(cache, chunks)
        longest = max(chunk.count for chunk in chunks)
        self.shape = (len(chunks), longest)
        real = [row * longest + i for row, chunk in enumerate(chunks) for i in range(chunk.count)]
        self.real = torch.tensor(real, device=cache.k.device)

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q [rows * longest, heads, head_dim], k and v likewise -> [rows * longest, heads * head_dim]."""
        self.cache.k[layer].index_put_((self.write_at,), k[self.real])
        self.cache.v[layer].index_put_((self.write_at,), v[self.real])
        q, k, v = (x.view(*self.shape, *x.shape[1:]).transpose(1, 2) for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).reshape(self.shape[0] * self.shape[1], -1)


def write_places(cache: KVCache, chunks: Rows[Chunk]) -> torch.Tensor:
    """Where in the pool the K and V of each computed token go, chunk after chunk: int64 [T]."""
    row = [index for index, chunk in enumerate(chunks) for _ in range(chunk.count)]
    position = [chunk.start + i for chunk in chunks for i in range(chunk.count)]
    row, position = torch.tensor([row, position], device=cache.k.device)
    return cache.places([chunk.sequence for chunk in chunks], row, position)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention of one sequence: its last T tokens q [T, heads, head_dim] over its whole context.

    k, v [context, kv_heads, head_dim]; token t sees the context up to itself. Returns [T, heads, head_dim].
    """
    count, context = len(q), len(k)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    mask = None
    if count < context:
        mask = torch.ones(count, context, dtype=torch.bool, device=q.device).tril(context - count)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True)
    return out[0].transpose(0, 1)
