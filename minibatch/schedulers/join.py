"""Axis 1, join: in which order may requests enter, and may a later one pass? Introduced in notebook 07."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from minibatch.request import Sequence


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


Join = FirstComeFirstServed | SmallOnesPass | ByPriority
JOINS: dict[str, type] = {"fcfs": FirstComeFirstServed, "small_ones_pass": SmallOnesPass, "priority": ByPriority}


def _check(max_passes: int) -> None:
    if max_passes < 0:
        raise ValueError(f"max_passes={max_passes!r}: must be 0 or more")
