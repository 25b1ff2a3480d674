"""Axis 3, reserve: what memory must there be for a request to enter? Introduced in notebook 07.

Nobody knows how long an answer will be. Reserve too much, and blocks stay empty while requests wait; too little,
and somebody has to be thrown out later. A reserve policy answers with a `Claim`: the tokens for which blocks are
taken at once, and the blocks that must stay free beside them. It holds for paged memory; a contiguous region has
its own reserve and never grows.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from minibatch.memory import PagedMemory
from minibatch.metrics import percentile
from minibatch.request import Sequence


class Claim(NamedTuple):
    """Take blocks for `tokens` tokens, if `keep_free` blocks then remain."""

    tokens: int
    keep_free: int = 0


class Reserve:
    """The parts of a policy that most do not need."""

    may_preempt = True  # what it claims may turn out too little
    first_chunk: int | None = None  # if a number: set before each claim, to the tokens one can be given in this step

    def check(self, memory: PagedMemory) -> None:
        """Raise ValueError for a policy that this memory can never satisfy."""

    def step_done(self, running: list[Sequence], preempted: bool) -> None:
        """A step was planned."""

    def finished(self, sequence: Sequence) -> None:
        """A sequence ended by itself: now its length is known."""


@dataclass
class FullNeed(Reserve):
    """Blocks for prompt and max_new_tokens, all at entry: nobody is ever preempted (TGI; TensorRT-LLM's
    GUARANTEED_NO_EVICT counts the same). Most answers end long before that.
    """

    may_preempt = False

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """P + N - 1 tokens."""
        return Claim(sequence.request.kv_need)


@dataclass
class PromptOnly(Reserve):
    """Blocks for what is known so far, with a `watermark` (a share of the pool) kept free for those who grow (vLLM)."""

    watermark: float = 0.0

    def check(self, memory: PagedMemory) -> None:
        """The watermark is a share of the pool, and something must be left beside it."""
        if not 0 <= self.watermark < 1:
            raise ValueError(f"watermark={self.watermark!r}: a share of the pool, 0 or more and below 1")

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """Prompt and, for one that was preempted, the answer so far."""
        return Claim(sequence.num_tokens, int(self.watermark * memory.num_blocks))


@dataclass
class NextChunk(PromptOnly):
    """Blocks for the first chunk of a prompt alone; the later ones take theirs as they come (vLLM V1, transformers).

    `whole_must_fit` asks that there be room for the rest too, untaken: without it a prompt may begin that has no
    chance to end (vLLM: scheduler_reserve_full_isl, issue 21809).
    """

    whole_must_fit: bool = True
    first_chunk: int = field(default=1 << 62, init=False)

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """What the step can compute of it; and the watermark, and perhaps the rest, free."""
        whole, spare = super().claim(sequence, running, memory)
        start = sequence.num_computed_tokens  # more than 0 if it was swapped out
        if memory.prefix_cache and not start and not self.whole_must_fit:
            start = memory.stored_prefix(sequence)
        chunk = min(whole, start + self.first_chunk)
        if self.whole_must_fit:
            spare += memory.blocks_for(whole) - memory.blocks_for(chunk)
        return Claim(chunk, spare)


@dataclass
class NewTokenRatio(Reserve):
    """Room for a share of what everyone may still write; the share sinks while all goes well (SGLang).

    It starts at `initial`, falls with each step over `decay_steps` steps to `floor`, and after a preemption jumps to
    what the running ones have written of their limits, 20 tokens each ahead. At most `clip` tokens count for one.
    """

    initial: float = 0.7
    floor: float = 0.098
    decay_steps: int = 600
    clip: int = 4096
    ratio: float = field(init=False)

    def __post_init__(self):
        if not 0 <= self.floor <= self.initial <= 1:
            raise ValueError(f"floor={self.floor!r}, initial={self.initial!r}: must be 0 <= floor <= initial <= 1")
        if self.decay_steps < 1:
            raise ValueError(f"decay_steps={self.decay_steps!r}: must be at least 1")
        self.ratio = self.initial

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """What the others are expected to need, and this one's own limit in full."""
        growth = self.ratio * sum(self._left(one) for one in running) + self._left(sequence)
        return Claim(sequence.num_tokens, math.ceil(growth / memory.block_size))

    def step_done(self, running: list[Sequence], preempted: bool) -> None:
        """Down a little; after a preemption, to what those who still run have shown."""
        if preempted and running:
            written = sum(len(one.output) + 20 for one in running)
            self.ratio = min(1.0, written / sum(one.request.sampling.max_new_tokens for one in running))
        elif running:
            self.ratio = max(self.floor, self.ratio - (self.initial - self.floor) / self.decay_steps)
        else:
            self.ratio = self.initial

    def _left(self, sequence: Sequence) -> int:
        return min(sequence.request.sampling.max_new_tokens - len(sequence.output), self.clip)


@dataclass
class FutureTokens(NewTokenRatio):
    """`NewTokenRatio` to the letter of SGLang's `PrefillAdder`, which goes with the mix `OneCutPrompt`.

    Whoever enters in the same step counts with its whole limit, not with the ratio; one page more than the sum must
    stay free; and the ratio falls in decode steps alone.
    """

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """Those who decode by the ratio, newcomers in full."""
        growth = sum(self._left(one) * (self.ratio if _decodes(one) else 1) for one in (*running, sequence))
        return Claim(sequence.num_tokens, 1 + int((growth + memory.block_size) / memory.block_size))

    def step_done(self, running: list[Sequence], preempted: bool) -> None:
        """In a step of prompts, the last one admitted has one to compute; then the ratio stays."""
        if preempted or not running or _decodes(running[-1]):
            super().step_done(running, preempted)


@dataclass
class Profiled(Reserve):
    """Room for the length that a share `quantile` of the last `window` answers did not exceed (article 2: a request
    must fit "durante todo o seu tempo de vida", by profiled lengths). Until `least` are known: the full limit.
    """

    quantile: float = 0.9
    window: int = 200
    least: int = 8
    lengths: deque[int] = field(init=False)

    def __post_init__(self):
        if not 0 < self.quantile <= 1:
            raise ValueError(f"quantile={self.quantile!r}: must be above 0 and at most 1")
        if self.window < self.least or self.least < 1:
            raise ValueError(f"least={self.least!r}, window={self.window!r}: must be 1 <= least <= window")
        self.lengths = deque(maxlen=self.window)

    def claim(self, sequence: Sequence, running: list[Sequence], memory: PagedMemory) -> Claim:
        """For each, the blocks between what it holds and the estimate."""
        known = len(self.lengths) >= self.least
        estimate = percentile(list(self.lengths), 100 * self.quantile) if known else math.inf
        growth = sum(self._growth(one, estimate, memory) for one in (*running, sequence))
        return Claim(sequence.num_tokens, growth)

    def finished(self, sequence: Sequence) -> None:
        """One length more."""
        self.lengths.append(len(sequence.output))

    def _growth(self, sequence: Sequence, estimate: float, memory: PagedMemory) -> int:
        limit = sequence.request.sampling.max_new_tokens
        output = max(min(estimate, limit), len(sequence.output))  # past the estimate: no more, for all one knows
        end = memory.blocks_for(len(sequence.request.prompt) + int(output) - 1)
        return max(0, end - max(len(sequence.block_table), memory.blocks_for(sequence.num_tokens)))


RESERVES: dict[str, type[Reserve]] = {
    "full": FullNeed,
    "prompt": PromptOnly,
    "next_chunk": NextChunk,
    "new_token_ratio": NewTokenRatio,
    "future_tokens": FutureTokens,
    "profiled": Profiled,
}


def _decodes(sequence: Sequence) -> bool:
    """True once its prompt has been computed."""
    return sequence.num_computed_tokens >= len(sequence.request.prompt)
