"""The batch that never closes: iteration-level scheduling (Orca, OSDI 2022; article 1's second C# listing).

Introduced in notebook 03 with its defaults; its four axes in notebooks 04 and 07.
"""

from bisect import bisect
from collections import Counter, deque

from minibatch.memory import Memory, PagedMemory
from minibatch.request import Request, Sequence, Status
from minibatch.schedulers.base import Scheduler
from minibatch.schedulers.draft import Draft
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.join import JOINS, Join, LongestPrefix
from minibatch.schedulers.mix import MIXES, Mix
from minibatch.schedulers.mix_whole import WholeUnderBudget
from minibatch.schedulers.reserve import RESERVES, Reserve
from minibatch.step import StepPlan, StepResult


class IterationScheduler(Scheduler):
    """Decide anew between any two steps: who has finished has left, who waits enters while there is a slot and memory.

    Four choices make it one system or another, each a name or an object: `join` (who may enter, in which order),
    `mix` (what one step contains), `reserve` (what memory must be there at entry), `evict` (who gives way when it
    runs out). As it stands it is Orca's: first come, first served, whole prompts beside decodes. `systems.py` has the
    others. `max_open` requests may be waiting and running; one more is refused at submit.
    """

    name = "iteration"

    def __init__(
        self,
        max_num_seqs: int = 8,
        memory: Memory | None = None,
        join: str | Join = "fcfs",
        mix: str | Mix = "whole",
        reserve: str | Reserve | None = None,
        evict: str | Evict = "newest",
        max_open: int | None = None,
    ):
        super().__init__(max_num_seqs, memory)
        if max_open is not None and max_open < 1:
            raise ValueError(f"max_open={max_open!r}: must be at least 1 request, or None for no limit")
        self.max_open = max_open
        self.join = _chosen("join", join, JOINS)
        self.mix = _chosen("mix", mix, MIXES)
        self.reserve = _chosen("reserve", reserve or "prompt", RESERVES)
        self.evict = Evict(evict) if isinstance(evict, str) else evict
        self.paged = isinstance(self.memory, PagedMemory)
        if getattr(self.mix, "counts_blocks", False) and not self.paged:
            raise ValueError(f"mix={self.mix!r}: counts free blocks, so it needs a PagedMemory")
        if self.paged:
            self.reserve.check(self.memory)
        elif reserve is not None:
            raise ValueError(f"reserve={reserve!r}: a contiguous region has its own, ContiguousMemory(reserve=...)")
        if isinstance(self.join, LongestPrefix) and not self._publishes:
            raise ValueError("join='longest_prefix': needs a PagedMemory with a prefix_cache to look into")
        if self.evict.swap and not (self.paged and self.memory.host_blocks is not None):
            raise ValueError("evict: swap=True needs a PagedMemory with host_blocks (0 is allowed: nothing then fits)")
        self.counts: Counter[str] = Counter()  # preemptions: "recomputed", "swapped"; of the first, "swap_refused"
        self._submitted = 0
        self._draft: Draft | None = None  # the step being planned, or the last one

    def schedule(self, now: float) -> StepPlan:
        """One step.

        There is no prefill or decode phase here. Each sequence has num_computed_tokens chasing num_tokens, and a step
        computes what is missing, or a part of it: a prompt at first, then one token at a time, and all of it again
        for one that was preempted. Whoever finished gave up its slot in `leave()`, as soon as its last token was known.
        """
        if isinstance(self.join, LongestPrefix) and self._free_slots:
            self.join.look(self.waiting, self.memory)
            self.waiting = deque(sorted(self.waiting, key=self.join.rank))
        draft = self._draft = Draft(self, now)
        self.mix.fill(draft)
        self.reserve.step_done(self.running, bool(draft.preempted))
        return StepPlan(
            chunks=tuple(draft.chunks.values()),
            admitted=tuple(draft.admitted),
            preempted=tuple(draft.preempted),
            moves=self.memory.take_moves(),
        )

    def refusal(self, request: Request) -> tuple[str, object, str] | None:
        """As every scheduler; and too many are open, or no step could hold its prompt."""
        if problem := super().refusal(request):
            return problem
        if self.max_open is not None and len(self.waiting) + len(self.running) >= self.max_open:
            return "max_open", self.max_open, "so many requests are open already; ask again later"
        if isinstance(self.mix, WholeUnderBudget):
            return self.mix.refusal(request, recomputes=self.reserve.may_preempt)
        return None

    def submit(self, sequence: Sequence) -> None:
        """Put a sequence in line."""
        sequence.order = self._submitted
        self._submitted += 1
        self._enqueue(sequence)

    def admit_one(self, now: float) -> Sequence | None:
        """Give the next of the queue a slot and memory; None if nobody can enter."""
        if not self._free_slots:
            return None
        for place, sequence in enumerate(self.waiting):
            if self._fits(sequence):
                del self.waiting[place]
                self._count_passed(sequence)
                self.seat(sequence, now)
                return sequence
            if not self.join.may_pass(sequence):
                return None
        return None

    def choose_victim(self) -> Sequence:
        """Who gives way to let another go on."""
        return self.evict.choose(self.running)

    def preempt(self, sequence: Sequence) -> None:
        """Take slot and memory; it waits in its old place in line, and nothing it has written is lost.

        Swapped out, it goes on where it stopped. Otherwise its tokens are computed again, as one prompt.
        """
        asked = self.evict.swap and sequence.num_computed_tokens > 0
        swapped = asked and self.memory.swap_out(sequence)
        if not swapped:
            self.memory.release(sequence)
            sequence.num_computed_tokens = 0
        self.counts["swapped" if swapped else "recomputed"] += 1
        self.counts["swap_refused"] += asked and not swapped
        sequence.preemptions += 1
        self.unseat([sequence])
        sequence.status = Status.PREEMPTED
        self._enqueue(sequence)

    def update(self, plan: StepPlan, result: StepResult, now: float) -> list[Sequence]:
        """As every scheduler; and the lengths of those that ended are noted."""
        done = super().update(plan, result, now)
        for sequence in done:
            self.reserve.finished(sequence)
        return done

    def fail(self, plan: StepPlan, error: BaseException, now: float) -> list[Sequence]:
        """As every scheduler; and who was to be swapped out in this step may not have been, so is computed again."""
        for sequence in self.waiting:
            if sequence.request_id in plan.preempted and self.memory.holds(sequence):
                self.memory.release(sequence)
                sequence.num_computed_tokens = 0
        return super().fail(plan, error, now)

    def _fits(self, sequence: Sequence) -> bool:
        """Take memory for one that waits, if the reserve policy finds enough of it."""
        parent = sequence.parent
        if parent and parent.status is Status.RUNNING and parent.num_computed_tokens < len(parent.request.prompt):
            return False  # a fork waits until there is something to share
        if not self.paged:
            return self.memory.admit(sequence)
        if self.reserve.first_chunk is not None and self._draft:
            self.reserve.first_chunk = min(self._draft.budget, self._draft.cap)
        claim = self.reserve.claim(sequence, self.running, self.memory)
        keep_free = claim.keep_free if self.running else 0  # if nobody runs, nothing is gained by waiting
        return self.memory.admit(sequence, claim.tokens, keep_free)

    def _enqueue(self, sequence: Sequence) -> None:
        rank = self.join.rank
        self.waiting.insert(bisect(self.waiting, rank(sequence), key=rank), sequence)

    def _count_passed(self, entered: Sequence) -> None:
        passed = self.join.passed(self.waiting, entered)
        for sequence in passed:
            sequence.times_passed += 1
        if passed:  # which may have changed their ranks
            self.waiting = deque(sorted(self.waiting, key=self.join.rank))


def _chosen(axis: str, choice: object, known: dict[str, type]) -> object:
    """A policy by its name, or as it is."""
    if not isinstance(choice, str):
        return choice
    if choice not in known:
        raise ValueError(f"{axis}={choice!r}: choose one of {', '.join(known)}, or give an object")
    return known[choice]()
