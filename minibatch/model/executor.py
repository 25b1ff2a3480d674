"""Runs a plan on the model. Introduced in notebook 03."""

import itertools
import time

import torch

from minibatch.model.kernel_attention import KernelAttention, kernel_backend
from minibatch.model.kv_cache import KVCache, PackedAttention, PaddedAttention
from minibatch.model.llama import Attend, Llama
from minibatch.model.paged_kv import PagedKVCache
from minibatch.model.sampling import sample
from minibatch.step import Chunk, StepPlan, StepResult


class TorchExecutor:
    """One forward pass a step over K/V tensors of `num_positions` tokens, which lie where the memory room says.

    With a `block_size` memory is paged, and `host_blocks` more blocks are kept in host memory for swapping; attention
    then goes through a handwritten kernel if $MINIBATCH_KERNEL names one (see `kernel_attention.kernel_backend`).
    `seconds` of a step are measured, moves of blocks, model and sampling together. A padded plan's prompts are
    computed as a rectangle, pads and all; its decode rows include the dead ones.
    """

    def __init__(
        self,
        llama: Llama,
        num_positions: int,
        max_model_len: int,
        batched_decode: bool = True,
        block_size: int | None = None,
        host_blocks: int = 0,
    ):
        self.llama, self.batched_decode = llama, batched_decode
        self.vocab_size = llama.config.vocab_size
        self.max_model_len = min(max_model_len, llama.config.max_position_embeddings)
        pool = (llama.config, num_positions, llama.dtype, llama.device)
        self.cache = PagedKVCache(*pool, block_size, host_blocks) if block_size else KVCache(*pool)
        self.kernel = kernel_backend(self.cache) if block_size else None

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Move blocks, compute the plan's tokens, store their K and V, and choose the next token where one is due."""
        started = time.perf_counter()
        if plan.moves:
            self.cache.apply(plan.moves)
        rows = self.cache.order(plan.rows)
        attend = self.attention(plan, rows)
        last = self._padded(rows, attend) if isinstance(attend, PaddedAttention) else self._packed(rows, attend)
        self._check_finite(last, attend.write_at)
        dead = set(plan.dead)
        scored = [i for i, row in enumerate(rows) if row.yields_token or row in dead]
        logits = self.llama.logits(last[scored])  # dead rows are scored like any other
        live = [i for i, row in enumerate(scored) if rows[row] not in dead]
        sequences = [rows[scored[i]].sequence for i in live]
        chosen = dict(zip(sequences, sample(logits[live] if dead else logits, sequences)))
        tokens = tuple(chosen.get(chunk.sequence) for chunk in plan.chunks)
        return StepResult(tokens, time.perf_counter() - started)

    def attention(self, plan: StepPlan, rows: list[Chunk]) -> PackedAttention | PaddedAttention | KernelAttention:
        """How this step's tokens look at each other."""
        if plan.num_padding_tokens:
            return PaddedAttention(self.cache, rows)
        if self.kernel:
            return KernelAttention(self.cache, rows, self.kernel)
        return PackedAttention(self.cache, rows, self.batched_decode)

    def _packed(self, rows: list[Chunk], attend: Attend) -> torch.Tensor:
        """All rows' tokens end to end; returns the hidden state [rows, hidden] of each row's last one."""
        tokens = [token for row in rows for token in row.sequence.tokens(row.start, row.count)]
        positions = [row.start + i for row in rows for i in range(row.count)]
        ends = itertools.accumulate(row.count for row in rows)
        return self._forward(tokens, positions, attend, [end - 1 for end in ends])

    def _padded(self, rows: list[Chunk], attend: PaddedAttention) -> torch.Tensor:
        """All rows as long as the longest; returns the hidden state [rows, hidden] of each row's last real token."""
        longest = attend.shape[1]
        tokens = [t for row in rows for t in (*row.sequence.tokens(row.start, row.count), *[0] * (longest - row.count))]
        ends = [index * longest + row.count - 1 for index, row in enumerate(rows)]
        return self._forward(tokens, list(range(longest)) * len(rows), attend, ends)

    def _forward(self, tokens: list[int], positions: list[int], attend: Attend, ends: list[int]) -> torch.Tensor:
        device = self.llama.device
        hidden = self.llama.forward(torch.tensor(tokens, device=device), torch.tensor(positions, device=device), attend)
        return hidden if len(ends) == len(hidden) else hidden[ends]

    def _check_finite(self, last: torch.Tensor, written: torch.Tensor) -> None:
        """A value that is not finite fails the step, and must not stay behind for the next owner of its place.

        What earlier steps wrote was finite, and may belong to others too (a shared prefix): it stays as it is.
        """
        if torch.isfinite(last).all():
            return
        self.cache.k[:, written] = 0
        self.cache.v[:, written] = 0
        raise FloatingPointError("the model computed a value that is not finite")
