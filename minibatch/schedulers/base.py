"""What every scheduler shares: a queue, slots, and the books after a step. The policy is `schedule()` alone."""

import heapq
from collections import deque

from minibatch.memory import ContiguousMemory, Memory, PagedMemory
from minibatch.request import FinishReason, Request, Sequence, Status
from minibatch.step import Chunk, StepPlan, StepResult


class Scheduler:
    """Holds the waiting queue and `max_num_seqs` slots. Subclasses write `schedule(now)`.

    First come, first served; the head of the queue blocks those behind it. Without a `memory`, each slot
    gets a contiguous region of 2,048 K/V positions.
    """

    name = "scheduler"
    padded = False  # its steps are rectangles of whole prompts

    def __init__(self, max_num_seqs: int = 8, memory: Memory | None = None):
        if max_num_seqs < 1:
            raise ValueError(f"max_num_seqs={max_num_seqs!r}: must be at least 1")
        self.max_num_seqs = max_num_seqs
        self.memory = memory or ContiguousMemory(max_num_seqs * 2048, max_model_len=2048)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # who holds a slot, in order of admission
        self.more_coming = False  # the engine knows of requests that have yet to arrive
        self._publishes = isinstance(self.memory, PagedMemory) and self.memory.prefix_cache
        if self._publishes and self.padded:
            raise ValueError(f"memory: prefix_cache=True is not for {self.name!r}, which computes whole prompts")
        self._free_slots = list(range(max_num_seqs))  # a heap: the lowest free slot is taken first

    def schedule(self, now: float) -> StepPlan:
        """Decide the next step, moving sequences between queue and slots. No chunks means: nothing to do now."""
        raise NotImplementedError

    def wake_at(self) -> float | None:
        """When schedule() would decide otherwise though nobody arrived; None if only an arrival can change it."""
        return None

    def refusal(self, request: Request) -> tuple[str, object, str] | None:
        """Why this request is turned away, as (field, value, why): it can never fit, or the queue is full by a rule."""
        why = self.memory.refusal(request)
        return ("max_new_tokens", request.sampling.max_new_tokens, why) if why else None

    def expire(self, now: float) -> list[Sequence]:
        """Sequences that have waited too long, by a rule: taken out of the queue and ended. Most know no such rule."""
        return []

    def submit(self, sequence: Sequence) -> None:
        """Put a sequence at the end of the queue."""
        self.waiting.append(sequence)

    def admit(self, now: float) -> list[Sequence]:
        """Move the head of the queue into slots while there is a slot and memory."""
        admitted = []
        while self.waiting and self._free_slots and self.memory.admit(self.waiting[0]):
            sequence = self.waiting.popleft()
            self.seat(sequence, now)
            admitted.append(sequence)
        return admitted

    def seat(self, sequence: Sequence, now: float) -> None:
        """Give it the lowest free slot."""
        sequence.slot, sequence.status = heapq.heappop(self._free_slots), Status.RUNNING
        if sequence.first_scheduled is None:
            sequence.first_scheduled, sequence.cached_tokens = now, sequence.num_computed_tokens
        self.running.append(sequence)

    def unseat(self, gone: list[Sequence]) -> None:
        """Take their slots back."""
        for sequence in gone:
            heapq.heappush(self._free_slots, sequence.slot)
            sequence.slot = None
        self.running = [sequence for sequence in self.running if sequence.slot is not None]

    def update(self, plan: StepPlan, result: StepResult, now: float) -> list[Sequence]:
        """Append the new tokens, end who is done, give slots back. Returns those that ended."""
        done = []
        for chunk, token in zip(plan.chunks, result.tokens, strict=True):
            sequence = chunk.sequence
            sequence.num_computed_tokens += chunk.count
            if self._publishes and sequence.num_computed_tokens % self.memory.block_size < chunk.count:
                self.memory.commit(sequence)  # the chunk filled a block
            reason = sequence.append(token, now) if token is not None else None
            if reason:
                sequence.finish(reason, now)
                done.append(sequence)
        if done:
            self.leave(done)
        return done

    def leave(self, done: list[Sequence]) -> None:
        """Finished sequences give back slot and memory, at once. A static batch overrides this."""
        for sequence in done:
            self.memory.release(sequence)
        self.unseat(done)

    def abort(self, sequence: Sequence, now: float) -> None:
        """End a sequence that its client no longer wants, wherever it stands."""
        waiting = sequence.slot is None
        sequence.finish(FinishReason.ABORTED, now)
        if waiting:
            self.waiting.remove(sequence)
            if self.memory.holds(sequence):  # it was swapped out
                self.memory.release(sequence)
        else:
            self.leave([sequence])

    def fail(self, plan: StepPlan, error: BaseException, now: float) -> list[Sequence]:
        """A step raised: end what was in it and take everything back. Who waits is untouched."""
        failed = [chunk.sequence for chunk in plan.chunks]
        for sequence in failed:
            sequence.finish(FinishReason.FAILED, now, error)
        Scheduler.leave(self, [row.sequence for row in plan.rows])
        return failed


def next_chunk(sequence: Sequence) -> Chunk:
    """All tokens whose K and V are still missing: the whole prompt at first (prefill), then one a step (decode)."""
    start = sequence.num_computed_tokens
    return Chunk(sequence, sequence.slot, start, sequence.num_tokens - start)
