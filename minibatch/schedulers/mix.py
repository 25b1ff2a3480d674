"""Axis 2, mix: what may one step contain? Introduced in notebook 04.

A mix policy fills a `Draft`, in which `compute(sequence)` gives one that holds a slot its next chunk, and `admit()`
lets in the next of the queue with its first chunk. There is no phase anywhere: each sequence has
num_computed_tokens chasing num_tokens, and a chunk is part or all of what is missing.

Those who run go first in every policy that mixes, and after a preemption nobody enters in that step: memory that
was taken from one who runs is for one who runs (vLLM V1).
"""

from dataclasses import dataclass

from minibatch.request import Sequence
from minibatch.schedulers.draft import Draft


@dataclass(frozen=True)
class WholePrefills:
    """Everyone who holds a slot takes a step; whoever enters brings a whole prompt to it (Orca, OSDI 2022).

    The second C# listing of article 1. A long prompt makes this step long for everyone in it.
    """

    token_budget = chunk_cap = None

    def fill(self, draft: Draft) -> None:
        """Everyone, then whoever can enter."""
        for sequence in draft.running:
            draft.compute(sequence)
        while not draft.preempted and draft.admit():
            pass


@dataclass(frozen=True)
class PrefillFirst:
    """A step computes prompts or decodes, never both, and prompts go first (vLLM V0, SGLang).

    `token_budget` bounds the prompt tokens of a step; a prompt that is longer takes several. While prompts are
    computed, nobody who runs gets a token.
    """

    token_budget: int | None = None
    chunk_cap = None

    def __post_init__(self):
        if self.token_budget is not None:
            _check("token_budget", self.token_budget)

    def fill(self, draft: Draft) -> None:
        """Prompts begun and prompts that can enter; only if there are none, a decode of everyone."""
        for sequence in draft.running:
            if not _decodes(sequence):
                draft.compute(sequence)
        while not draft.preempted and draft.admit():
            pass
        if all(_decodes(sequence) for sequence in draft.chunks):  # one that was swapped out may be back
            draft.budget = len(draft.running)  # the budget is one of prompt tokens
            for sequence in draft.running:
                draft.compute(sequence)


@dataclass(frozen=True)
class Chunked(WholePrefills):
    """The same loop under one budget of tokens a step: a prompt gets what is left, a chunk at a time.

    Sarathi-Serve (OSDI 2024), vLLM V1; article 1, "prefill fatiado". No step computes more than `token_budget`
    tokens, so no gap between two tokens is longer than such a step. Nobody who runs is left out of a step: each
    entered because those before it left something of the budget, and from step to step these never ask for more.
    `chunk_cap` bounds what one sequence gets, so that a short prompt need not wait for the end of a long one
    (vLLM: long_prefill_token_threshold).
    """

    token_budget: int = 256
    chunk_cap: int | None = None

    def __post_init__(self):
        _check("token_budget", self.token_budget)
        if self.chunk_cap is not None:
            _check("chunk_cap", self.chunk_cap)


Mix = WholePrefills | PrefillFirst | Chunked
MIXES: dict[str, type] = {"whole": WholePrefills, "prefill_first": PrefillFirst, "chunked": Chunked}


def _decodes(sequence: Sequence) -> bool:
    """True if all it lacks is the token it wrote last. The last token of a prompt is prefill, alone or not."""
    return bool(sequence.output) and sequence.num_tokens - sequence.num_computed_tokens == 1


def _check(field: str, tokens: object) -> None:
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise ValueError(f"{field}={tokens!r}: must be a whole number of tokens, at least 1")
