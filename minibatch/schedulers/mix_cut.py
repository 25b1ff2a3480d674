"""Mixes that cut prompts as one system or the other does. Introduced in notebook 09; the plain one is `mix.Chunked`."""

from dataclasses import dataclass, field

from minibatch.request import Sequence
from minibatch.schedulers.draft import Draft
from minibatch.schedulers.mix import _check, _decodes

NO_LIMIT = 1 << 62  # tokens


@dataclass(frozen=True)
class BlockChunks:
    """Everyone who decodes; then prompts, cut at multiples of `unit` tokens (TensorRT-LLM's chunked context).

    Each prompt gets as much as is left (FIRST_COME_FIRST_SERVED), or, `in_turn`, one unit after the other until the
    budget is gone (EQUAL_PROGRESS). The unit is a block.
    """

    token_budget: int = 8192
    unit: int = 16
    in_turn: bool = False
    chunk_cap = None

    def __post_init__(self):
        _check_unit(self.token_budget, self.unit)

    def fill(self, draft: Draft) -> None:
        """Decodes, prompts begun, prompts that can enter."""
        most = self.unit if self.in_turn else NO_LIMIT
        for sequence in compute_decodes(draft):
            draft.cap = aligned(draft, sequence, self.unit, most)
            draft.compute(sequence)
        while not draft.preempted and draft.scheduler.waiting:
            draft.cap = aligned(draft, draft.scheduler.waiting[0], self.unit, most)
            if not draft.cap or not draft.admit():
                break
        if self.in_turn:
            self._deal(draft)

    def _deal(self, draft: Draft) -> None:
        """One unit more for each unfinished prompt in turn, while the budget lasts."""
        chunks = [chunk for chunk in draft.chunks.values() if not chunk.yields_token]
        counts, left = {chunk.sequence: chunk.count for chunk in chunks}, draft.budget
        unfinished = [(chunk.sequence, chunk.sequence.num_tokens - chunk.start) for chunk in chunks]
        while unfinished:
            again = []
            for sequence, missing in unfinished:
                more = min(self.unit, missing - counts[sequence])
                if more <= left:
                    counts[sequence], left = counts[sequence] + more, left - more
                    again += [(sequence, missing)] * (counts[sequence] < missing)
            unfinished = again
        for sequence, count in counts.items():
            draft.budget += draft.chunks.pop(sequence).count
            draft.cap = count
            draft.compute(sequence)


@dataclass
class OneCutPrompt:
    """Prompts go first, and at most one of them is cut; only where there is none, a decode of everyone (SGLang).

    `token_budget` is chunked_prefill_size (None: no prompt is cut), `max_prefill_tokens` what a step of prompts may
    hold unless the first alone is longer. With `mixed` (enable_mixed_chunk) those who decode do so in every step, and
    what they take is not there for prompts. Who could not enter is not asked for again until somebody has left.
    """

    token_budget: int | None = 8192
    max_prefill_tokens: int = 16384
    mixed: bool = False
    unit: int = 1  # a chunk that is not the last is a multiple of it: the page
    chunk_cap = None
    full_at: int | None = field(default=None, init=False)  # so many ran when somebody could not enter

    def __post_init__(self):
        _check_unit(NO_LIMIT if self.token_budget is None else self.token_budget, self.unit)
        _check("max_prefill_tokens", self.max_prefill_tokens)

    def fill(self, draft: Draft) -> None:
        """Prompts, or everyone."""
        budget = draft.budget
        if self.mixed:
            self._decode(draft)
            draft.budget = budget - len(draft.chunks)
        if draft.budget > 0 and not draft.preempted:
            self._prompts(draft)
        if not draft.chunks:
            self._decode(draft)

    def _decode(self, draft: Draft) -> None:
        draft.budget = len(draft.running)
        begun = self._begun(draft)
        for sequence in draft.running:
            if sequence is not begun:
                draft.compute(sequence)

    def _begun(self, draft: Draft) -> Sequence | None:
        """The prompt that was cut, if there is one: nobody has entered since."""
        return draft.running[-1] if draft.running and not _decodes(draft.running[-1]) else None

    def _prompts(self, draft: Draft) -> None:
        budget = draft.budget
        if begun := self._begun(draft):
            draft.cap = aligned(draft, begun, self.unit)
            draft.compute(begun)
        if self.full_at is not None and len(draft.running) >= self.full_at:
            return
        self.full_at = None
        while self._next_may_enter(draft, budget - draft.budget):
            if not draft.admit():
                self.full_at = max(1, len(draft.scheduler.running))
                return

    def _next_may_enter(self, draft: Draft, spent: int) -> bool:
        """Is there anybody, has no prompt been cut yet, and does some of this one fit into the step?

        What a cut leaves of the budget is less than a page. SGLang would still give it to a prompt as short as that.
        """
        waiting = draft.scheduler.waiting
        last = next(reversed(draft.chunks.values()), None)
        if not waiting or (last and not last.yields_token):
            return False
        draft.cap = aligned(draft, waiting[0], self.unit)
        return draft.cap > 0 and (not spent or waiting[0].num_tokens < self.max_prefill_tokens - spent)


@dataclass(frozen=True)
class DecodesAndMargin:
    """Everyone who decodes, then prompts while more than a `safety_margin` of the pool is free (transformers' FIFO).

    The margin counts for prompts already begun too, but never for the first of a step. A chunk for which there are no
    blocks is left out of the step; only those who decode make others give way.
    """

    token_budget: int = 8192
    safety_margin: float = 0.15
    chunk_cap = None
    counts_blocks = True

    def __post_init__(self):
        _check("token_budget", self.token_budget)
        if not 0 <= self.safety_margin < 1:
            raise ValueError(f"safety_margin={self.safety_margin!r}: a share of the pool, 0 or more and below 1")

    def fill(self, draft: Draft) -> None:
        """Decodes, prompts begun, prompts that can enter."""
        for sequence in compute_decodes(draft):
            if self._may_go_on(draft) and (not draft.chunks or _has_room(draft, sequence)):
                draft.compute(sequence)
        while not draft.preempted and self._may_go_on(draft) and draft.admit():
            pass

    def _may_go_on(self, draft: Draft) -> bool:
        memory = draft.scheduler.memory
        return not draft.chunks or memory.pool.num_free >= self.safety_margin * memory.num_blocks


def _check_unit(token_budget: int, unit: int) -> None:
    _check("token_budget", token_budget)
    _check("unit", unit)
    if token_budget < unit:
        raise ValueError(f"token_budget={token_budget!r}: must be at least one unit of {unit} tokens")


def compute_decodes(draft: Draft) -> list[Sequence]:
    """Give those who decode their token; returns the others, whose prompts have begun."""
    begun = []
    for sequence in draft.running:
        if _decodes(sequence):
            draft.compute(sequence)
        else:
            begun.append(sequence)
    return begun


def aligned(draft: Draft, sequence: Sequence, unit: int, most: int = NO_LIMIT) -> int:
    """Tokens it can be given now: all it lacks, or a multiple of `unit` (0: not even one is left of the budget)."""
    missing, room = sequence.num_tokens - sequence.num_computed_tokens, min(draft.budget, most)
    return missing if missing <= room else room - room % unit


def _has_room(draft: Draft, sequence: Sequence) -> bool:
    memory = draft.scheduler.memory
    count = min(sequence.num_tokens - sequence.num_computed_tokens, draft.budget)
    more = memory.blocks_for(sequence.num_computed_tokens + count) - len(sequence.block_table)
    return more <= memory.pool.num_free
