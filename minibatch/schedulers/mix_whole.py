"""Mixes that never cut a prompt, each under a budget of tokens a step. Introduced in notebook 09.

A prompt that does not fit into what is left of a step's budget waits for the next step, and everybody behind it too.
One that no step could hold is refused at submit.
"""

from dataclasses import dataclass, field
from itertools import islice

from minibatch.request import Request, Sequence
from minibatch.schedulers.draft import Draft
from minibatch.schedulers.mix import _check


@dataclass
class WholeUnderBudget:
    """Everyone who runs, each for one token; then prompts as they are, while the budget holds.

    TensorRT-LLM's micro-batch scheduler without chunked context, where `token_budget` is max_num_tokens.
    """

    token_budget: int = 8192
    chunk_cap = None

    def __post_init__(self):
        _check("token_budget", self.token_budget)

    def refusal(self, request: Request, recomputes: bool) -> tuple[str, object, str] | None:
        """Why no step can hold it, as (field, value, why). One that is preempted comes back as one long prompt."""
        longest = request.kv_need if recomputes else len(request.prompt)
        if longest <= self.token_budget:
            return None
        what = "computed again in one step after a preemption" if recomputes else "computed in one step"
        return "prompt", f"{len(request.prompt)} tokens", f"must be {what}, {self.token_budget} tokens at most"

    def fill(self, draft: Draft) -> None:
        """Everyone, then the prompts that fit."""
        for sequence in draft.running:
            draft.compute(sequence)
        self.admit_whole(draft)

    def admit_whole(self, draft: Draft) -> None:
        """Let in the next of the queue as long as it fits into what is left of the budget."""
        while not draft.preempted and self._fits_budget(draft) and draft.admit():
            pass

    def _fits_budget(self, draft: Draft) -> bool:
        waiting = draft.scheduler.waiting
        return bool(waiting) and waiting[0].num_tokens - waiting[0].num_computed_tokens <= draft.budget


@dataclass
class PromptsOrDecodes(WholeUnderBudget):
    """A step computes whole prompts or decodes, never both, and prompts go first (vLLM V0).

    While somebody is swapped out, no prompt is computed at all, and nobody is swapped in in a step that preempted.
    """

    counts_blocks = True

    def fill(self, draft: Draft) -> None:
        """Prompts that can enter; only if there are none, a decode of everyone, and who can come back from the host."""
        self.admit_whole(draft)
        if not draft.chunks:
            self.decode(draft)
            while not draft.preempted and self._swapped(draft) and draft.admit():
                pass

    def decode(self, draft: Draft) -> None:
        """One token for everyone. V0 asks for a free block a sequence, though few need one in any step."""
        scheduler, draft.budget = draft.scheduler, 1 << 62  # the budget is one of prompt tokens
        for sequence in draft.running:
            while sequence.slot is not None and not scheduler.memory.pool.num_free and len(scheduler.running) > 1:
                draft._withdraw(scheduler.choose_victim())
            draft.compute(sequence)

    def _fits_budget(self, draft: Draft) -> bool:
        return super()._fits_budget(draft) and not self._swapped(draft)

    def _swapped(self, draft: Draft) -> bool:
        """True if the next of the queue is in host memory: whoever was swapped out came before all newcomers."""
        waiting = draft.scheduler.waiting
        return bool(waiting) and draft.scheduler.memory.holds(waiting[0])


@dataclass
class PromptsInGroups(WholeUnderBudget):
    """Decodes go on until enough requests wait, and these are then computed as one group, alone (TGI, not chunking).

    Enough is `waiting_served_ratio` times those who run; after `max_waiting_tokens` decode steps without a newcomer,
    whoever fits is enough. A decode of everyone follows each group. Needs a reserve that knows the end: `FullNeed`.
    """

    waiting_served_ratio: float = 0.3
    max_waiting_tokens: int = 20
    counts_blocks = True
    waited: int = field(default=0, init=False)  # tokens written by those who run since the last group came

    def __post_init__(self):
        super().__post_init__()
        _check("max_waiting_tokens", self.max_waiting_tokens)
        if not self.waiting_served_ratio >= 0:
            raise ValueError(f"waiting_served_ratio={self.waiting_served_ratio!r}: must be 0 or more")

    def fill(self, draft: Draft) -> None:
        """A group if it is large enough, else a decode."""
        if not draft.running or (self.waited > 1 and self._enough_fit(draft)):
            self.admit_whole(draft)
        if draft.chunks:
            self.waited = 1  # the group's own first token
            return
        self.waited += 1
        draft.budget = len(draft.running)
        for sequence in draft.running:
            draft.compute(sequence)

    def _enough_fit(self, draft: Draft) -> bool:
        """Would as many get in as the rule asks for? Found out before anybody moves."""
        scheduler, memory = draft.scheduler, draft.scheduler.memory
        least = int(len(draft.running) * self.waiting_served_ratio)
        if self.waited >= self.max_waiting_tokens or least <= 1:
            return True
        first: list[Sequence] = list(islice(scheduler.waiting, least))
        blocks = sum(memory.blocks_for(sequence.request.kv_need) for sequence in first)
        return (
            len(first) == least <= scheduler.max_num_seqs - len(scheduler.running)
            and blocks <= memory.pool.num_free
            and sum(sequence.num_tokens for sequence in first) <= draft.budget
        )
