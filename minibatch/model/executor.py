"""Runs a plan on the model. Introduced in notebook 03."""

import itertools
import time

import torch

from minibatch.model.kv_cache import KVCache, PackedAttention, PaddedAttention
from minibatch.model.llama import Attend, Llama
from minibatch.model.sampling import sample
from minibatch.step import Chunk, StepPlan, StepResult


class TorchExecutor:
    """One forward pass a step over K/V tensors of `num_positions` tokens, which lie where the memory room says.

    `seconds` of a step are measured, model and sampling together. A padded plan's prompts are computed as a
    rectangle, pads and all; its decode rows include the dead ones.
    """

    def __init__(self, llama: Llama, num_positions: int, max_model_len: int, batched_decode: bool = True):
        self.llama, self.batched_decode = llama, batched_decode
        self.vocab_size = llama.config.vocab_size
        self.max_model_len = min(max_model_len, llama.config.max_position_embeddings)
        self.cache = KVCache(llama.config, num_positions, llama.dtype, llama.device)

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the plan's tokens, store their K and V, and choose the next token where one is due."""
        started = time.perf_counter()
        # In the order of their regions, decodes of neighbouring regions are one view of the cache.
        rows = sorted(plan.rows, key=lambda row: row.sequence.region.start)
        last = self._padded(rows) if plan.num_padding_tokens else self._packed(rows)  # [rows, hidden]
        self._check_finite(last, rows)
        dead = set(plan.dead)
        scored = [i for i, row in enumerate(rows) if row.yields_token or row in dead]
        logits = self.llama.logits(last[scored])  # dead rows are scored like any other
        live = [i for i, row in enumerate(scored) if rows[row] not in dead]
        sequences = [rows[scored[i]].sequence for i in live]
        chosen = dict(zip(sequences, sample(logits[live] if dead else logits, sequences)))
        tokens = tuple(chosen.get(chunk.sequence) for chunk in plan.chunks)
        return StepResult(tokens, time.perf_counter() - started)

    def _packed(self, rows: list[Chunk]) -> torch.Tensor:
        """All rows' tokens end to end; returns the hidden state of each row's last one."""
        tokens = [token for row in rows for token in row.sequence.tokens(row.start, row.count)]
        positions = [row.start + i for row in rows for i in range(row.count)]
        attend = PackedAttention(self.cache, rows, self.batched_decode)
        ends = itertools.accumulate(row.count for row in rows)
        return self._forward(tokens, positions, attend, [end - 1 for end in ends])

    def _padded(self, rows: list[Chunk]) -> torch.Tensor:
        """All rows as long as the longest; returns the hidden state of each row's last real token."""
        longest = max(row.count for row in rows)
        tokens = [t for row in rows for t in (*row.sequence.tokens(row.start, row.count), *[0] * (longest - row.count))]
        attend = PaddedAttention(self.cache, rows, longest)
        ends = [index * longest + row.count - 1 for index, row in enumerate(rows)]
        return self._forward(tokens, list(range(longest)) * len(rows), attend, ends)

    def _forward(self, tokens: list[int], positions: list[int], attend: Attend, ends: list[int]) -> torch.Tensor:
        device = self.llama.device
        hidden = self.llama.forward(torch.tensor(tokens, device=device), torch.tensor(positions, device=device), attend)
        return hidden if len(ends) == len(hidden) else hidden[ends]

    def _check_finite(self, last: torch.Tensor, rows: list[Chunk]) -> None:
        """A value that is not finite fails the step, and must not stay behind for the region's next owner."""
        if torch.isfinite(last).all():
            return
        for row in rows:
            region = slice(row.sequence.region.start, row.sequence.region.stop)
            self.cache.k[:, region] = 0
            self.cache.v[:, region] = 0
        raise FloatingPointError("the model computed a value that is not finite")
