"""Axis 1, join: in which order may requests enter, and may a later one pass? Introduced in notebook 07."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from minibatch.memory import PagedMemory
from minibatch.request import Sequence, Status


@dataclass(frozen=True)
class FirstComeFirstServed:
    """The head of the queue blocks those behind it, so nobody is ever passed. The default of every system here."""

    def rank(self, sequence: Sequence) -> tuple[int, ...]:
        """Lower goes first. One that was preempted came early, so it stands before all newcomers."""
        return (sequence.order,)

    def may_pass(self, sequence: Sequence) -> bool:
        """May a later one enter while this one cannot?"""
        return False

    def passed(self, waiting: Iterable[Sequence], entered: Sequence) -> list[Sequence]:
        """Who waits still and came before the one that entered."""
        return []


@dataclass(frozen=True)
class SmallOnesPass:
    """Whoever fits may pass those before it that do not, but nobody is passed more than `max_passes` times."""

    max_passes: int = 16

    def __post_init__(self):
        _check(self.max_passes)

    def rank(self, sequence: Sequence) -> tuple[int, ...]:
        """By arrival."""
        return (sequence.order,)

    def may_pass(self, sequence: Sequence) -> bool:
        """Until it has been passed often enough: then the door stays shut until it fits."""
        return sequence.times_passed < self.max_passes

    def passed(self, waiting: Iterable[Sequence], entered: Sequence) -> list[Sequence]:
        """The queue is in the order of arrival: those at its front."""
        return list(takewhile(lambda sequence: sequence.order < entered.order, waiting))


@dataclass(frozen=True)
class WhoeverFits(FirstComeFirstServed):
    """Whoever fits may pass those before it that do not, without a bound; nobody passes one that was preempted.

    The default of transformers' continuous batching. A large request can wait for long behind a stream of small ones.
    """

    def may_pass(self, sequence: Sequence) -> bool:
        """Any newcomer may be passed."""
        return sequence.status is Status.WAITING


@dataclass(frozen=True)
class ByPriority:
    """Lower `priority` first, by arrival among equals; passed `max_passes` times, a request goes before all others.

    Without a bound, a steady stream of important requests would keep the others out for ever.
    """

    max_passes: int = 16

    def __post_init__(self):
        _check(self.max_passes)

    def rank(self, sequence: Sequence) -> tuple[int, ...]:
        """Those passed too often, then by priority."""
        urgent = sequence.times_passed >= self.max_passes
        return (0, 0, sequence.order) if urgent else (1, sequence.request.priority, sequence.order)

    def may_pass(self, sequence: Sequence) -> bool:
        """The head blocks: whoever passed it came with a better rank."""
        return False

    def passed(self, waiting: Iterable[Sequence], entered: Sequence) -> list[Sequence]:
        """Anywhere in the queue."""
        return [sequence for sequence in waiting if sequence.order < entered.order]


@dataclass
class LongestPrefix:
    """Whose first tokens are stored furthest goes first, by arrival among equals (SGLang's "lpm", off by default).

    What is hot is used before it is thrown out. A queue longer than `longest_queue` is left in the order of arrival:
    looking everybody up would cost more than it brings. Of several that begin alike with more than `shared_tokens`
    tokens, and of which nothing longer is stored, only the first keeps its place; the others stand behind the
    rest until it has computed what they share. There is no bound on how often one may be passed, and SGLang has none.
    """

    longest_queue: int = 128
    shared_tokens: int = 32
    _ranks: dict[Sequence, tuple[int, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        for name in ("longest_queue", "shared_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be 0 or more")

    def rank(self, sequence: Sequence) -> tuple[int, ...]:
        """As of the last look: those put back last, then by the length of what is stored."""
        return (*self._ranks.get(sequence, (0, 0)), sequence.order)

    def may_pass(self, sequence: Sequence) -> bool:
        """The head blocks."""
        return False

    def passed(self, waiting: Iterable[Sequence], entered: Sequence) -> list[Sequence]:
        """Nobody counts."""
        return []

    def look(self, waiting: Iterable[Sequence], memory: PagedMemory) -> None:
        """Ask the prefix cache about everybody who waits: once a step, before anybody enters."""
        self._ranks = {}
        waiting = sorted(waiting, key=lambda sequence: sequence.order)
        if len(waiting) > self.longest_queue:
            return
        beginnings: set[tuple[int, ...]] = set()  # of those who will compute them
        for sequence in waiting:
            stored, begins = memory.stored_prefix(sequence), sequence.tokens(0, self.shared_tokens + 1)
            new = stored <= self.shared_tokens < len(begins)
            self._ranks[sequence] = (int(new and begins in beginnings), -stored)
            if new:
                beginnings.add(begins)


Join = FirstComeFirstServed | SmallOnesPass | WhoeverFits | ByPriority | LongestPrefix
JOINS: dict[str, type] = {
    "fcfs": FirstComeFirstServed,
    "small_ones_pass": SmallOnesPass,
    "whoever_fits": WhoeverFits,
    "priority": ByPriority,
    "longest_prefix": LongestPrefix,
}


def _check(max_passes: int) -> None:
    if max_passes < 0:
        raise ValueError(f"max_passes={max_passes!r}: must be 0 or more")
