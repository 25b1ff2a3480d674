"""Right and wrong answers to lab 2. Read by tests/test_labs.py, which says the format."""

from collections import Counter, deque

from minibatch.checks.lab2 import (
    check_admitted,
    check_bound,
    check_memory,
    check_order,
    check_passing,
    check_prompts,
)
from minibatch.checks.lab2_plans import check_audit, check_by_hand, check_rows, check_scores
from minibatch.schedulers import IterationScheduler, Scheduler, StaticBatcher
from minibatch.schedulers.base import next_chunk
from minibatch.schedulers.join import SmallOnesPass
from minibatch.step import Chunk, StepPlan

LAB = "lab2"


class Parts(Scheduler):
    """What the answers below share: `enter` says who gets in, `work` what each one computes."""

    def schedule(self, now):
        entered = self.enter(now)
        return StepPlan(tuple(self.work(s) for s in self.running), admitted=tuple(s.request_id for s in entered))

    def enter(self, now):
        return self.admit(now)

    def work(self, sequence):
        return next_chunk(sequence)

    def let_in(self, sequence, now):
        self.waiting.remove(sequence)
        self.seat(sequence, now)
        return sequence

    @property
    def free(self):
        return self.max_num_seqs - len(self.running)


# ---- question 2: right ----


class WithThePackagesOwnAdmit(Parts):
    pass


class OneByOne(Scheduler):
    """Chunks put together as people come, the newest first in the plan, in another slot each time."""

    def schedule(self, now):
        old, names = list(self.running), []
        while len(names) + len(old) < self.max_num_seqs:
            if not self.waiting or not self.memory.admit(self.waiting[0]):
                break
            self.seat(self.waiting[0], now)
            names.append(self.waiting.popleft().request_id)
        new = [s for s in self.running if s not in old]
        chunks = [Chunk(s, s.slot, s.num_computed_tokens, s.num_tokens - s.num_computed_tokens) for s in new + old]
        return StepPlan(chunks=tuple(chunks), admitted=tuple(reversed(names)))


# ---- question 2: wrong ----


class StaticInDisguise(Parts):
    def enter(self, now):
        return [] if self.running else self.admit(now)


class WaitsForCompany(Parts):
    """The tray's other half: no step before the batch is full."""

    def enter(self, now):
        return self.admit(now) if len(self.waiting) >= self.free or not self.more_coming else []


class ForgetsMemory(Parts):
    def enter(self, now):
        return [self.let_in(self.waiting[0], now) for _ in range(min(self.free, len(self.waiting)))]


class PassesTheHead(Parts):
    def enter(self, now):
        return [self.let_in(s, now) for s in list(self.waiting) if self.free and self.memory.admit(s)]


class LastInFirstOut(Parts):
    def enter(self, now):
        entered = []
        while self.waiting and self.free and self.memory.admit(self.waiting[-1]):
            entered.append(self.let_in(self.waiting[-1], now))
        return entered


class ShortestFirst(Parts):
    def enter(self, now):
        self.waiting = deque(sorted(self.waiting, key=lambda s: s.request.kv_need))
        return self.admit(now)


class NewcomersWaitAStep(Parts):
    def schedule(self, now):
        chunks = tuple(next_chunk(s) for s in self.running)
        return StepPlan(chunks, admitted=tuple(s.request_id for s in self.admit(now)))


class PrefillInAStepOfItsOwn(Parts):
    """vLLM V0, SGLang: under a stream of new prompts those who decode starve (sglang #34058)."""

    def schedule(self, now):
        plan = super().schedule(now)
        first = tuple(chunk for chunk in plan.chunks if chunk.start == 0)
        return StepPlan(first or plan.chunks, admitted=plan.admitted)


class PromptEveryStep(Parts):
    """No K/V cache: everything from the start."""

    def work(self, sequence):
        return Chunk(sequence, sequence.slot, 0, sequence.num_tokens)


class LastPromptTokenTwice(Parts):
    """Prefilled, then fed once more as the first decode (cb-lab)."""

    def work(self, sequence):
        start = max(0, sequence.num_computed_tokens - (len(sequence.output) == 1))
        return Chunk(sequence, sequence.slot, start, sequence.num_tokens - start)


class OneBeyond(Parts):
    """Wants to compute the token that this step will bring."""

    def work(self, sequence):
        start = sequence.num_computed_tokens
        return Chunk(sequence, sequence.slot, start, sequence.num_tokens + 1 - start)


class OneTokenAtATime(Parts):
    """Prefill taken for decode."""

    def work(self, sequence):
        return Chunk(sequence, sequence.slot, sequence.num_computed_tokens, 1)


class NamesEverybody(Parts):
    def schedule(self, now):
        self.admit(now)
        return StepPlan(tuple(next_chunk(s) for s in self.running), admitted=tuple(s.request_id for s in self.running))


class NamesNobody(Parts):
    def schedule(self, now):
        self.admit(now)
        return StepPlan(tuple(next_chunk(s) for s in self.running))


class SequencesForNames(Parts):
    def schedule(self, now):
        entered = self.enter(now)
        return StepPlan(tuple(next_chunk(s) for s in self.running), admitted=tuple(entered))


class MoreThanSlots(Parts):
    def enter(self, now):
        return [self.let_in(s, now) for s in list(self.waiting) if self.memory.admit(s)]


class OneOverTheLimit(Parts):
    def enter(self, now):
        entered = []
        while self.waiting and len(self.running) <= self.max_num_seqs and self.memory.admit(self.waiting[0]):
            entered.append(self.let_in(self.waiting[0], now))
        return entered


class OneAStep(Parts):
    """`if` for `while`."""

    def enter(self, now):
        able = self.waiting and self.free and self.memory.admit(self.waiting[0])
        return [self.let_in(self.waiting[0], now)] if able else []


class SlotTwice(Parts):
    """Numbers the slots by hand."""

    def work(self, sequence):
        return next_chunk(sequence)._replace(slot=len(self.running) - 1)


class SlotByPlace(Parts):
    """The place in `running` is taken for the slot: they part as soon as somebody leaves."""

    def work(self, sequence):
        return next_chunk(sequence)._replace(slot=self.running.index(sequence))


class StaysInTheQueue(Parts):
    def enter(self, now):
        entered = []
        while self.waiting and self.free and self.memory.admit(self.waiting[0]):
            self.seat(self.waiting[0], now)
            entered.append(self.waiting[0])
        return entered


class AsksTwice(Parts):
    """memory.admit() taken for a question without consequences."""

    def enter(self, now):
        able = [s for s in self.waiting if self.memory.admit(s)]
        return [self.let_in(s, now) for s in able[: self.free] if self.memory.admit(s)]


class MemoryBeforeSlot(Parts):
    """The two conditions in the wrong order: memory is taken for one that finds no slot."""

    def enter(self, now):
        entered = []
        while self.waiting and self.memory.admit(self.waiting[0]) and self.free:
            entered.append(self.let_in(self.waiting[0], now))
        return entered


class TheVisibleExample(Parts):
    """A, B at once, C in step 3."""

    def enter(self, now):
        return self.admit(now) if now in (0, 2) else []


class ReturnsAList(Parts):
    def schedule(self, now):
        return super().schedule(now).chunks


class Raises(Parts):
    def schedule(self, now):
        return self.queue


# ---- question 4 ----


class BoundedByThePackage(IterationScheduler):
    def __init__(self, max_num_seqs, memory):
        super().__init__(max_num_seqs, memory, join=SmallOnesPass(2))


class BoundWithACounter(Parts):
    """The count kept outside, every look at the queue from its head on."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passes = Counter()

    def enter(self, now):
        entered = []
        while self.free and (one := self.next_one()):
            entered.append(self.let_in(one, now))
        return entered

    def next_one(self):
        for place, sequence in enumerate(self.waiting):
            if self.memory.admit(sequence):
                self.passes.update(list(self.waiting)[:place])
                return sequence
            if self.passes[sequence] == 2:
                return None
        return None


class Passing(Parts):
    """Right as it stands; the wrong ones below change one thing each."""

    most = 2

    def enter(self, now):
        entered, ahead = [], []
        for sequence in list(self.waiting):
            if not self.free or any(self.is_shut(one) for one in ahead):
                break
            if self.memory.admit(sequence):
                entered.append(self.let_in(sequence, now))
                self.count(ahead)
            else:
                ahead.append(sequence)
        return entered

    def is_shut(self, one):
        return one.times_passed >= self.most

    def count(self, ahead):
        for one in ahead:
            one.times_passed += 1


class NoBound(Passing):
    most = 10**9


class OnePassTooMany(Passing):
    most = 3


class OnePassTooFew(Passing):
    most = 1


class CountsSteps(Passing):
    """The other year's rule."""

    def enter(self, now):
        self.passed = []
        entered = super().enter(now)
        super().count(self.passed)
        return entered

    def count(self, ahead):
        self.passed = list(ahead)


class CountsTheHeadAlone(Passing):
    def count(self, ahead):
        super().count(ahead[:1])


class LooksAtTheHeadAlone(Passing):
    def enter(self, now):
        entered, ahead = [], []
        for sequence in list(self.waiting):
            if not self.free or (ahead and self.is_shut(ahead[0])):
                break
            if self.memory.admit(sequence):
                entered.append(self.let_in(sequence, now))
                self.count(ahead[-1:])
            else:
                ahead.append(sequence)
        return entered


class CountsWaiting(Passing):
    """Each step of waiting is taken for a pass, whether anybody entered or not."""

    def enter(self, now):
        entered = super().enter(now)
        super().count(self.waiting)
        return entered

    def count(self, ahead):
        pass


class SmallestFirst(Passing):
    def enter(self, now):
        self.waiting = deque(sorted(self.waiting, key=lambda s: s.request.kv_need))
        return super().enter(now)


class BlocksAtTheBound(Passing):
    """Once somebody has been passed too often, it comes in without memory."""

    def enter(self, now):
        late = [s for s in self.waiting if s.times_passed >= self.most][: self.free]
        return [self.let_in(s, now) for s in late] + super().enter(now)


class MemoryBeforeSlotInTheQueue(Passing):
    """Asks for memory before it looks for a slot, and keeps what it got."""

    def enter(self, now):
        entered, ahead = [], []
        for sequence in list(self.waiting):
            if any(self.is_shut(one) for one in ahead):
                break
            if not self.memory.admit(sequence):
                ahead.append(sequence)
            elif self.free:
                entered.append(self.let_in(sequence, now))
                self.count(ahead)
        return entered


class RemovesWhileItLooks(Passing):
    def enter(self, now):
        return [self.let_in(s, now) for s in self.waiting if self.free and self.memory.admit(s)]


# ---- questions 1, 3 and 5 ----


def audit_by_sets(plan, scheduler):
    chunks, names = plan.chunks, {chunk.sequence.request_id for chunk in plan.chunks}
    used = [chunk.slot for chunk in chunks]
    rules = {
        "slot": len(set(used)) == len(used) and all(chunk.slot == chunk.sequence.slot for chunk in chunks),
        "start": all(chunk.start == chunk.sequence.num_computed_tokens for chunk in chunks),
        "count": all(0 < chunk.count <= chunk.sequence.num_tokens - chunk.start for chunk in chunks),
        "memory": all(scheduler.memory.holds(chunk.sequence) for chunk in chunks),
        "pause": all(s.is_finished or s.request_id in names for s in scheduler.running),
    }
    return {name for name, kept in rules.items() if not kept}


def audit_as_a_list(plan, scheduler):
    return sorted(audit_by_sets(plan, scheduler))


def audit_without(rule):
    def audit(plan, scheduler):
        return audit_by_sets(plan, scheduler) - {rule}

    audit.__name__ = f"audit_without_{rule}"
    return audit


def first_rule_only(plan, scheduler):
    return set(sorted(audit_by_sets(plan, scheduler))[:1])


def slots_against_each_other_only(plan, scheduler):
    used = [chunk.slot for chunk in plan.chunks]
    good = len(set(used)) == len(used) and all(0 <= slot < scheduler.max_num_seqs for slot in used)
    return audit_by_sets(plan, scheduler) - {"slot"} | (set() if good else {"slot"})


def own_slot_only(plan, scheduler):
    good = all(chunk.slot == chunk.sequence.slot for chunk in plan.chunks)
    return audit_by_sets(plan, scheduler) - {"slot"} | (set() if good else {"slot"})


def whole_prompts_only(plan, scheduler):
    """Takes a chunk of a prompt for a mistake."""
    short = any(chunk.start + chunk.count < chunk.sequence.num_tokens for chunk in plan.chunks)
    return audit_by_sets(plan, scheduler) | ({"count"} if short else set())


def prompt_for_all_tokens(plan, scheduler):
    """Forgets that the output is part of what is known."""
    over = any(chunk.start + chunk.count > len(chunk.sequence.request.prompt) for chunk in plan.chunks)
    return audit_by_sets(plan, scheduler) - {"count"} | ({"count"} if over else set())


def the_finished_pause(plan, scheduler):
    planned = {chunk.sequence.request_id for chunk in plan.chunks}
    left_out = any(s.request_id not in planned for s in scheduler.running)
    return audit_by_sets(plan, scheduler) - {"pause"} | ({"pause"} if left_out else set())


def no_empty_chunks_noticed(plan, scheduler):
    over = any(chunk.start + chunk.count > chunk.sequence.num_tokens for chunk in plan.chunks)
    return audit_by_sets(plan, scheduler) - {"count"} | ({"count"} if over else set())


def cost_by_formula(work):
    """n(n + 1)/2 for the new ones, and what is stored for each of them."""
    widths = [count for _, count in work]
    scores = sum(count * start + count * (count + 1) / 2 for start, count in work)
    return [sum(widths), len(widths) * (max(widths) if widths else 0), scores]


def cost_token_by_token(work):
    packed = scores = widest = 0
    for start, count in work:
        widest = max(widest, count)
        for position in range(start, start + count):
            packed, scores = packed + 1, scores + position + 1
    return packed, widest * len(work), scores


def cost_with(**wrong):
    """A right answer but for one part, which is a function of the work."""
    names = ("packed", "padded", "scores")

    def step_cost(work):
        right = dict(zip(names, cost_by_formula(work)))
        return tuple((right | {name: part(work) for name, part in wrong.items()}).values())

    return step_cost


def called(name, answer):
    """A short answer with a name for the matrix."""
    answer.__name__ = name
    return answer


def picture(*rows):
    return called(" ".join(rows), lambda: list(rows))


TABLE = {
    "by_hand": {
        "name": "by_hand",
        "checks": {"by_hand_picture": check_by_hand},
        "right": [
            picture("AACCD", "BBBBBEEE"),
            picture("BBBBBEEE..", "AACCD"),
            picture("AACCDEEE", "BBBBB"),
            called("a_tuple", lambda: ("AACCD...", "BBBBBEEE")),
        ],
        "wrong": [
            (picture("AA...CCEEE", "BBBBBD"), "a slot is empty"),  # the tray
            (picture("AA.CCD", "BBBBB.EEE"), "a slot is empty"),  # a step between leaving and entering
            (picture("AADCC.", "BBBBBEEE"), "first come"),  # the shortest first
            (picture("AACCEEED", "BBBBB"), "first come"),
            (picture("AACC", "BBBBBEEE"), "steps of D: 0"),
            (picture("AACCDD", "BBBBBEEE"), "steps of D: 2"),
            (picture("AACCE.EE", "BBBBBD"), "pauses"),
            (picture("AACCD", "BBBBBE", "......EE"), "2 strings"),
            (picture("AAE.EECCD", "BBBBB"), "pauses"),
            (picture("AACEEED", "BBBBBC"), "two slots"),
            (picture("AAEEECCD", "BBBBB"), "4 steps"),  # before it comes
            (picture("AACCD", "BBBBBeee"), "letters"),
            (called("one_string", lambda: "AACCD"), "2 strings"),
            (called("ends", lambda: [2, 5, 4, 5, 8]), "2 strings"),  # the steps in which they end
        ],
    },
    "schedule": {
        "name": "MyScheduler",
        "checks": {
            "schedule_order": check_order,
            "schedule_prompts": check_prompts,
            "schedule_memory": check_memory,
            "schedule_admitted": check_admitted,
        },
        "right": [WithThePackagesOwnAdmit, OneByOne, IterationScheduler],
        "wrong": [
            (StaticInDisguise, "C waits, although"),
            (StaticBatcher, "C waits, although"),
            (WaitsForCompany, "why wait for company"),
            (ForgetsMemory, "never asked"),
            (PassesTheHead, "the head of the line blocks"),
            (LastInFirstOut, "enters before"),
            (ShortestFirst, "enters before"),
            (NewcomersWaitAStep, "nobody is scheduled"),
            (PrefillInAStepOfItsOwn, "prefills and decodes go in one step"),
            (PromptEveryStep, "from position 0"),
            (LastPromptTokenTwice, "stored"),
            (OneBeyond, "up to position 2"),
            (OneTokenAtATime, "computes 1 of"),
            (NamesEverybody, "who got a slot in this very step"),
            (NamesNobody, "says that nobody entered"),
            (SequencesForNames, "a Sequence"),
            (MoreThanSlots, "no slot is free"),
            (OneOverTheLimit, "no slot is free"),
            (OneAStep, "B waits, although"),
            (SlotTwice, "slot"),
            (SlotByPlace, "is planned for slot"),
            (StaysInTheQueue, "is asked again"),
            (AsksTwice, "is asked again"),
            (MemoryBeforeSlot, "is asked again"),
            (TheVisibleExample, "never ended"),
            (ReturnsAList, "a StepPlan is wanted"),
            (Raises, "AttributeError"),
            (called("no_scheduler", lambda slots, memory: []), "a subclass of Scheduler"),
        ],
    },
    "audit": {
        "name": "audit",
        "checks": {"audit_plans": check_audit},
        "right": [audit_by_sets, audit_as_a_list],
        "wrong": [
            *((audit_without(rule), "one that is not named") for rule in ("slot", "start", "count", "memory", "pause")),
            (called("all_is_well", lambda plan, scheduler: set()), "one that is not named"),
            (first_rule_only, "one that is not named"),
            (slots_against_each_other_only, "one that is not named"),
            (own_slot_only, "one that is not named"),
            (no_empty_chunks_noticed, "one that is not named"),
            (whole_prompts_only, "does not break count"),
            (prompt_for_all_tokens, "does not break count"),
            (the_finished_pause, "does not break pause"),
            (
                called("true_or_false", lambda plan, scheduler: not audit_by_sets(plan, scheduler)),
                "a set with the names",
            ),
            (called("raises", lambda plan, scheduler: plan.rule), "AttributeError"),
        ],
    },
    "passing": {
        "name": "PassingScheduler",
        "checks": {"passing_fits": check_passing, "passing_bound": check_bound},
        "right": [BoundedByThePackage, BoundWithACounter, Passing],
        "wrong": [
            (WithThePackagesOwnAdmit, "C waits, although"),  # the head blocks
            (NoBound, "how often has B been passed"),
            (PassesTheHead, "how often has B been passed"),
            (OnePassTooMany, "how often has B been passed"),
            (OnePassTooFew, "waits, although"),
            (CountsSteps, "how often has B been passed"),
            (CountsTheHeadAlone, "how often has"),
            (LooksAtTheHeadAlone, "how often has"),
            (CountsWaiting, "waits, although"),
            (SmallestFirst, "came first"),
            (BlocksAtTheBound, "never asked"),
            (ForgetsMemory, "never asked"),
            (MemoryBeforeSlotInTheQueue, "is asked again"),
            (RemovesWhileItLooks, "RuntimeError"),
        ],
    },
    "cost": {
        "name": "step_cost",
        "checks": {"cost_rows": check_rows, "cost_scores": check_scores},
        "right": [cost_by_formula, cost_token_by_token],
        "wrong": [
            (called("sequences_for_tokens", cost_with(packed=len)), "packed: "),
            (called("padding_alone", cost_with(padded=lambda w: 2)), "padded: "),
            (called("square", cost_with(padded=lambda w: max([n for _, n in w], default=0) ** 2)), "padded: "),
            (called("context_padded", cost_with(padded=lambda w: len(w) * max(map(sum, w), default=0))), "padded: "),
            (called("no_cache", cost_with(scores=lambda w: sum(n * (n + 1) // 2 for _, n in w))), "is stored already"),
            (called("not_causal", cost_with(scores=lambda w: sum(n * (s + n) for s, n in w))), "come after it"),
            (called("not_itself", cost_with(scores=lambda w: sum(n * s + n * (n - 1) // 2 for s, n in w))), "itself"),
            (called("not_alone", cost_with(scores=lambda w: sum(n for _, n in w) * sum(map(sum, w)))), "of another"),
            (called("nobody_there", cost_with(padded=lambda w: len(w) * max(n for _, n in w))), "ValueError"),
            (called("two_numbers", lambda work: cost_by_formula(work)[:2]), "three numbers"),
            (called("the_visible_example", lambda work: (4, 6, 12)), "packed: "),
        ],
    },
}

OTHER_YEAR = [
    ("by_hand_picture", {"slots": 3}, picture("AACCD", "BBBBBEEE"), "3 strings"),
    ("passing_bound", {"counted": "steps"}, Passing, "waits, although"),
    ("passing_bound", {"max_passes": 1}, Passing, "how often has B been passed"),
]
