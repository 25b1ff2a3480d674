"""Triton's dynamic batcher whole: preferred sizes, a delay, priority levels, limits of the queue.

Introduced in notebook 09. Source: triton-inference-server/server, docs/user_guide/batcher.md. Once closed, its batch
is static: a request's life is one execution.
"""

from bisect import bisect
from collections import deque
from collections.abc import Iterable

from minibatch.memory import Memory
from minibatch.request import FinishReason, Request, Sequence
from minibatch.schedulers.static import StaticBatcher

TIMEOUT_ACTIONS = ("reject", "delay")


class TritonBatcher(StaticBatcher):
    """Close the batch as soon as it has a preferred size, the full size, or its oldest has waited `max_queue_delay`.

    Of several `preferred_sizes` that can be formed, the largest is sent; without a delay (seconds) whoever is there
    is sent at once. With `priority_levels`, a request's `priority` is its level: 1 goes first, 0 stands for
    `default_priority_level`; first come, first served within a level. `max_queue_size` requests may wait in a level (0:
    any number). Who has waited `timeout` seconds (0: no limit) is rejected, or set behind all others of its level.
    """

    name = "triton"

    def __init__(
        self,
        max_num_seqs: int = 8,
        memory: Memory | None = None,
        preferred_sizes: Iterable[int] = (),
        max_queue_delay: float = 0.0,
        priority_levels: int = 0,
        default_priority_level: int = 1,
        max_queue_size: int = 0,
        timeout: float = 0.0,
        timeout_action: str = "reject",
    ):
        super().__init__(max_num_seqs, memory)
        self.preferred_sizes = tuple(sorted(preferred_sizes))
        if not all(1 <= size <= max_num_seqs for size in self.preferred_sizes):
            raise ValueError(f"preferred_sizes={self.preferred_sizes!r}: each must be 1 to max_num_seqs={max_num_seqs}")
        limits = {"max_queue_delay": max_queue_delay, "priority_levels": priority_levels}
        for field, value in {**limits, "max_queue_size": max_queue_size, "timeout": timeout}.items():
            if not value >= 0:
                raise ValueError(f"{field}={value!r}: must be 0 or more")
        if priority_levels and not 1 <= default_priority_level <= priority_levels:
            raise ValueError(f"default_priority_level={default_priority_level!r}: must be 1 to {priority_levels}")
        if timeout_action not in TIMEOUT_ACTIONS:
            raise ValueError(f"timeout_action={timeout_action!r}: choose one of {', '.join(TIMEOUT_ACTIONS)}")
        self.max_queue_delay, self.timeout, self.timeout_action = max_queue_delay, timeout, timeout_action
        self.priority_levels, self.default_priority_level = priority_levels, default_priority_level
        self.max_queue_size = max_queue_size

    def refusal(self, request: Request) -> tuple[str, object, str] | None:
        """As every scheduler; and there is no such level, or its queue is full."""
        if problem := super().refusal(request):
            return problem
        if self.priority_levels and not 0 <= request.priority <= self.priority_levels:
            why = f"levels are 1 (first) to {self.priority_levels}, and 0 for {self.default_priority_level}"
            return "priority", request.priority, why
        ahead = sum(self._level(one.request) == self._level(request) for one in self.waiting if self.max_queue_size)
        if ahead >= self.max_queue_size > 0:
            return "max_queue_size", self.max_queue_size, "so many requests wait already; ask again later"
        return None

    def submit(self, sequence: Sequence) -> None:
        """Put a sequence at the end of its level."""
        if not self.priority_levels:
            super().submit(sequence)
            return
        level = self._level(sequence.request)
        self.waiting.insert(bisect(self.waiting, level, key=lambda one: self._level(one.request)), sequence)

    def expire(self, now: float) -> list[Sequence]:
        """End, or set back, who has waited too long. Returns those that ended."""
        late = [sequence for sequence in self.waiting if self._is_late(sequence, now)] if self.timeout else []
        if not late:
            return []
        if self.timeout_action == "delay":
            ranked = sorted(self.waiting, key=lambda one: (self._level(one.request), self._is_late(one, now)))
            self.waiting = deque(ranked)
            return []
        for sequence in late:
            self.waiting.remove(sequence)
            waited = now - sequence.request.arrival
            error = TimeoutError(f"timeout={self.timeout!r}: waited {waited:.6g} s for a batch")
            sequence.finish(FinishReason.ABORTED, now, error)
        return late

    def admit(self, now: float) -> list[Sequence]:
        """As many as are to go now, as far as memory reaches."""
        admitted = []
        for _ in range(self._batch_size(now)):
            if not self.memory.admit(self.waiting[0]):
                break
            admitted.append(self.waiting.popleft())
            self.seat(admitted[-1], now)
        return admitted

    def batch_is_ready(self, now: float) -> bool:
        """Is there a batch to send?"""
        return self._batch_size(now) > 0

    def wake_at(self) -> float | None:
        """When the oldest will have waited for long enough to be sent, or for too long."""
        if not self.waiting:
            return None
        rejects = self.timeout and self.timeout_action == "reject"
        waits = [wait for wait in (self.max_queue_delay, self.timeout if rejects else 0.0) if wait]
        return self._oldest() + min(waits) if waits else None

    def _batch_size(self, now: float) -> int:
        """How many to send now; 0 is to wait for more."""
        there = min(len(self.waiting), self.max_num_seqs)
        if preferred := [size for size in self.preferred_sizes if size <= there]:
            return preferred[-1]
        waits = there and self.max_queue_delay and there < self.max_num_seqs
        return 0 if waits and now < self._oldest() + self.max_queue_delay else there

    def _oldest(self) -> float:
        return min(sequence.request.arrival for sequence in self.waiting)

    def _level(self, request: Request) -> int:
        return (request.priority or self.default_priority_level) if self.priority_levels else 0

    def _is_late(self, sequence: Sequence, now: float) -> bool:
        return now >= sequence.request.arrival + self.timeout
