"""One iteration's decision (`StepPlan`, immutable) and what came of it (`StepResult`).

Introduced in notebook 02. A plan is all an executor ever sees of a scheduler.
"""

from dataclasses import dataclass
from typing import NamedTuple

from minibatch.request import Sequence


class Chunk(NamedTuple):
    """Compute tokens [start, start + count) of a sequence in its slot."""

    sequence: Sequence  # read by the executor, never written
    slot: int
    start: int
    count: int

    @property
    def yields_token(self) -> bool:
        """True if this chunk reaches the last known token, so that a next one can be chosen."""
        return self.start + self.count == self.sequence.num_tokens


class Move(NamedTuple):
    """One block's K and V to be copied before the step computes: kind "copy" (on write), "out" (to host), "in"."""

    kind: str
    source: int
    target: int


class MemoryEvent(NamedTuple):
    """What happened to a block: kind "take" (new to its owner), "share" (one owner more), "give" (one less)."""

    kind: str
    request_id: str
    block: int


class RegionEvent(NamedTuple):
    """What happened to a contiguous region of K/V positions: kind "take" or "give"."""

    kind: str
    request_id: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one iteration does.

    `dead` are finished sequences that still hold a slot of a static batch: their row is computed like any
    other (their last token over again, at its own position) and thrown away. `padded` asks for one
    rectangle, every row as long as the longest: how a static batcher pays for unequal prompts. `moves` come
    before everything else, in their order: a block moved out may be the target of a later one.
    """

    chunks: tuple[Chunk, ...]
    dead: tuple[Chunk, ...] = ()
    admitted: tuple[str, ...] = ()  # request ids that got their slot in this step
    padded: bool = False
    preempted: tuple[str, ...] = ()  # request ids that lost their slot to let others go on
    moves: tuple[Move, ...] = ()

    @property
    def rows(self) -> tuple[Chunk, ...]:
        """All rows computed: live, then dead."""
        return self.chunks + self.dead

    @property
    def num_tokens(self) -> int:
        """Tokens of live sequences computed in this step."""
        return sum(chunk.count for chunk in self.chunks)

    @property
    def num_padding_tokens(self) -> int:
        """Tokens of no sequence at all, computed to fill the rectangle (dead rows count as one real token)."""
        if not self.padded:
            return 0
        counts = [row.count for row in self.rows]
        return max(counts) * len(counts) - sum(counts)


@dataclass(frozen=True, slots=True)
class StepResult:
    """A new token for each chunk of the plan (None where the chunk did not reach the end), and how long it took."""

    tokens: tuple[int | None, ...]
    seconds: float
