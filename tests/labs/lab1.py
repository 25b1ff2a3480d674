"""Right and wrong answers to lab 1. Read by tests/test_labs.py, which says the format."""

from dataclasses import replace
from itertools import zip_longest

from minibatch.checks.lab1 import check_door, check_positions, check_rows, check_useful, check_wasted
from minibatch.checks.lab1_batcher import check_batches, check_closing, check_dead_rows, check_lost, check_mean_live
from minibatch.memory import ContiguousMemory
from minibatch.schedulers import IterationScheduler, Scheduler
from minibatch.schedulers.base import next_chunk
from minibatch.step import Chunk, StepPlan

LAB = "lab1"
MAX_WAIT = 2.0


def mistakes(**table):
    """The answers under names that say what is wrong with them."""
    for name, (answer, _) in table.items():
        answer.__name__ = name
    return list(table.values())


# The bill.


def bill_step_by_step(lengths, num_slots):
    queue, useful, wasted = list(lengths), 0, 0
    while queue:
        left, queue = queue[:num_slots], queue[num_slots:]
        while any(left):
            useful += sum(x > 0 for x in left)
            wasted += sum(x <= 0 for x in left)
            left = [max(x - 1, 0) for x in left]
    return [useful, wasted]


def bill_by(batches, rows=lambda batch, num_slots: len(batch), longest=max):
    """A bill from a rule that cuts the lengths into batches, one that counts rows, one that says how long it runs."""

    def bill(lengths, num_slots):
        paid = sum(rows(each, num_slots) * longest(each) for each in batches(lengths, num_slots))
        return sum(lengths), paid - sum(lengths)

    return bill


def cut(lengths, num_slots):
    return [lengths[i : i + num_slots] for i in range(0, len(lengths), num_slots)]


def bill_of_floats(lengths, num_slots):
    useful, wasted = bill_step_by_step(lengths, num_slots)
    return float(useful), wasted * (1 + 1e-9)


def changed(useful=lambda x, *_: x, wasted=lambda x, *_: x):
    """The right bill, and what somebody made of its two numbers."""

    def bill(lengths, num_slots):
        right = bill_step_by_step(lengths, num_slots)
        return useful(right[0], *right, lengths, num_slots), wasted(right[1], *right, lengths, num_slots)

    return bill


def until_the_shortest(lengths, num_slots):
    return sum(lengths), sum(x - min(each) for each in cut(lengths, num_slots) for x in each)


def last_batch_dropped(lengths, num_slots):
    full = [each for each in cut(lengths, num_slots) if len(each) == num_slots]
    return sum(lengths), sum(max(each) - x for each in full for x in each)


BILL = {
    "name": "bill",
    "checks": {"useful": check_useful, "wasted": check_wasted},
    "right": [bill_step_by_step, bill_by(cut), bill_of_floats],
    "wrong": mistakes(
        empty_slots_too=(bill_by(cut, rows=lambda batch, num_slots: num_slots), "empty"),
        one_batch_for_all=(bill_by(lambda lengths, _: [lengths]), "own longest"),
        shortest_first=(bill_by(lambda lengths, num_slots: cut(sorted(lengths), num_slots)), "order of arrival"),
        longest_first=(bill_by(lambda lengths, num_slots: cut(sorted(lengths)[::-1], num_slots)), "order of arrival"),
        until_the_shortest=(until_the_shortest, "longest answer, not"),
        last_batch_dropped=(last_batch_dropped, "not full"),
        prefills_token_forgotten=(changed(useful=lambda x, u, w, lengths, _: u - len(lengths)), "first token"),
        prefill_a_step_of_its_own=(changed(useful=lambda x, u, w, lengths, _: u + len(lengths)), "first token"),
        useful_and_wasted=(changed(useful=lambda x, u, w, *_: u + w), "all slot-steps"),
        share_useful=(changed(useful=lambda x, u, w, *_: u / (u + w)), "share"),
        steps=(changed(useful=lambda x, u, w, lengths, n: sum(map(max, cut(lengths, n)))), "steps"),
        wasted_and_useful=(changed(wasted=lambda x, u, w, *_: u + w), "not wasted"),
        share_wasted=(changed(wasted=lambda x, u, w, *_: w / (u + w)), "share"),
        dead_steps=(changed(wasted=lambda x, u, w, lengths, n: sum(max(b) - min(b) for b in cut(lengths, n))), "steps"),
        dead_a_step_later=(changed(wasted=lambda x, u, w, lengths, _: max(w - len(lengths), 0)), "step after"),
        visible_example=(lambda lengths, num_slots: (920, 880), "useful if"),
        one_number=(lambda lengths, num_slots: bill_step_by_step(lengths, num_slots)[1], "pair"),
        turned_round=(lambda lengths, num_slots: bill_step_by_step(lengths, num_slots)[::-1], "in their order"),
    ),
}


# The rectangle.


def rectangle_by(side="left", real=None, positions=None, last=None, width=max, prompts=list):
    """A rectangle with one thing done as somebody does it."""

    def rectangle(given, pad_id):
        some = [list(prompt) for prompt in prompts(given)]
        wide = width(len(prompt) for prompt in some)
        rest = [max(wide - len(prompt), 0) for prompt in some]
        before = rest if side == "left" else [0] * len(some)
        tokens = [[pad_id] * pads + prompt + [pad_id] * (more - pads) for pads, prompt, more in zip(before, some, rest)]
        mask = [[p <= i < p + len(prompt) for i in range(len(row))] for p, prompt, row in zip(before, some, tokens)]
        places = [[max(i - pads, 0) for i in range(len(row))] for pads, row in zip(before, tokens)]
        ends = [pads + len(prompt) - 1 for pads, prompt in zip(before, some)]
        parts = {"tokens": tokens, "pad": pad_id, "prompts": some}
        if real:
            mask = real(parts)
        if positions:
            places = positions(parts)
        if last:
            ends = last(parts)
        return tokens, mask, places, ends

    return rectangle


def rectangle_turned(prompts, pad_id):
    """Padded on the right, backwards, and turned round; the mask as 1 and 0; padding at position 1."""
    columns = list(zip_longest(*(reversed(prompt) for prompt in prompts), fillvalue=None))[::-1]
    rows = [list(row) for row in zip(*columns)]
    tokens = [[pad_id if token is None else token for token in row] for row in rows]
    real = [[int(token is not None) for token in row] for row in rows]
    positions = [[sum(row[:i]) if row[i] else 1 for i in range(len(row))] for row in real]
    return [tokens, real, positions, [len(columns) - 1 for _ in prompts]]


def each_column(parts):
    return [list(range(len(row))) for row in parts["tokens"]]


def by_id(parts):
    return [[token != parts["pad"] for token in row] for row in parts["tokens"]]


def all_true(rows):
    return [[True] * len(row) for row in rows]


def moved(rows, by):
    return [[each + by for each in row] for row in rows]


RECTANGLE = {
    "name": "rectangle",
    "checks": {"rows": check_rows, "positions": check_positions},
    "right": [rectangle_by(), rectangle_turned],
    "wrong": mistakes(
        other_side=(rectangle_by(side="right"), "left"),
        positions_count_padding=(rectangle_by(positions=each_column), "columns"),
        real_by_id=(rectangle_by(real=by_id), "hold the pad id"),
        padding_taken_for_real=(rectangle_by(real=lambda parts: all_true(parts["tokens"])), "True where"),
        last_position=(rectangle_by(last=lambda parts: [len(p) - 1 for p in parts["prompts"]]), "moves the column"),
        last_plus_one=(rectangle_by(last=lambda parts: [len(row) for row in parts["tokens"]]), "from 0"),
        one_too_wide=(rectangle_by(width=lambda lengths: max(lengths) + 1), "as wide as"),
        as_wide_as_the_shortest=(rectangle_by(width=min), "equally long"),
        fixed_width=(rectangle_by(width=lambda lengths: 8), "as wide as"),
        sorted_by_length=(rectangle_by(prompts=lambda given: sorted(given, key=len)), "order"),
        positions_of_another_shape=(rectangle_by(positions=lambda parts: [[0, 1, 2]] * 3), "one is wanted for each"),
        positions_below_zero=(rectangle_by(positions=lambda parts: moved(each_column(parts), -7)), "own first token"),
        positions_from_one=(rectangle_by(positions=lambda parts: moved(each_column(parts), 1)), "own first token"),
        tokens_alone=(lambda prompts, pad_id: rectangle_by()(prompts, pad_id)[0], "Rectangle"),
        visible_example=(lambda prompts, pad_id: rectangle_by()([[5, 6, 7], [8]], pad_id), "as wide as"),
        pad_id_always_zero=(lambda prompts, pad_id: rectangle_by()(prompts, 0), "pad ids"),
    ),
}


# When the door closes.


def ready_counted(arrivals, now, num_slots, more_coming):
    waited = [now - time for time in arrivals]
    return len(waited) >= num_slots or max(waited, default=-1) >= MAX_WAIT


def ready_nested(arrivals, now, num_slots, more_coming):
    if not arrivals:
        return 0
    if arrivals[0] + MAX_WAIT <= now:
        return 1
    return int(len(arrivals) > num_slots - 1)


def ready_nobody(arrivals, now, num_slots, more_coming):
    return len(arrivals) >= num_slots or not more_coming


def clock(start, strict=False):
    """A batcher whose clock starts at `start(arrivals)`."""

    def ready(arrivals, now, num_slots, more_coming):
        if len(arrivals) >= num_slots:
            return True
        waited = now - start(arrivals) if arrivals else -1
        return waited > MAX_WAIT if strict else waited >= MAX_WAIT

    return ready


READY = {
    "name": "ready",
    "checks": {"door": check_door},
    "right": [ready_counted, ready_nested, clock(min)],
    "wrong": mistakes(
        each_arrival_starts_the_clock=(clock(max), "whoever came after"),
        more_than_max_wait=(clock(min, strict=True), "has waited 2 s of 2"),
        clock_of_the_server=(clock(lambda arrivals: 0), "not full"),
        mean_wait=(clock(lambda arrivals: sum(arrivals) / len(arrivals)), "whoever came after"),
        knows_the_future=(lambda *args: ready_nobody(*args), "does not know"),
        only_full=(lambda arrivals, now, num_slots, more_coming: len(arrivals) >= num_slots, "has waited"),
        never_the_last_slot=(lambda arrivals, now, num_slots, more_coming: len(arrivals) > num_slots, "is full"),
        only_the_clock=(lambda arrivals, now, num_slots, more_coming: now - arrivals[0] >= MAX_WAIT, "is full"),
        exactly_full=(lambda arrivals, now, num_slots, more_coming: len(arrivals) == num_slots, "is full"),
        at_once=(lambda arrivals, now, num_slots, more_coming: bool(arrivals), "not full"),
        empty_queue=(lambda a, now, num_slots, _: len(a) >= num_slots or now - a[0] >= MAX_WAIT, "IndexError"),
        word=(lambda arrivals, now, num_slots, more_coming: "yes", "True or False"),
    ),
}


# The batcher. What is given in the lab's class, with a right ready().


class Given(Scheduler):
    name, padded, ready = "static", True, staticmethod(ready_counted)

    def may_start(self, now):
        arrivals = [sequence.request.arrival for sequence in self.waiting]
        return self.ready(arrivals, now, self.max_num_seqs, self.more_coming)

    def wake_at(self):
        return self.waiting[0].request.arrival + MAX_WAIT if self.waiting else None


class Right(Given):
    """The parts that the mistakes below change one by one."""

    def schedule(self, now):
        admitted = self.admit(now) if self.may_open(now) else []
        return StepPlan(
            chunks=tuple(next_chunk(sequence) for sequence in self.running if not sequence.is_finished),
            dead=tuple(self.row(sequence) for sequence in self.running if sequence.is_finished),
            admitted=tuple(sequence.request_id for sequence in admitted),
            padded=True,
        )

    def may_open(self, now):
        return not self.running and self.may_start(now)

    def row(self, sequence):
        return Chunk(sequence, sequence.slot, sequence.num_computed_tokens - 1, 1)

    def leave(self, done):
        if not [sequence for sequence in self.running if not sequence.is_finished]:
            super().leave(self.running)


class ReleasesWhenAskedAgain(Given):
    """Nothing happens in leave(); the batch is cleared when the next step is asked for."""

    def schedule(self, now):
        if self.running and all(sequence.is_finished for sequence in self.running):
            Scheduler.leave(self, list(self.running))
        new = []
        if self.running == [] and self.waiting and self.may_start(now):
            new = self.admit(now)
        chunks, dead = [], []
        for s in self.running:
            if s.is_finished:
                dead.append(Chunk(s, s.slot, len(s.request.prompt) + len(s.output) - 2, 1))
            else:
                chunks.append(Chunk(s, s.slot, s.num_computed_tokens, s.num_tokens - s.num_computed_tokens))
        return StepPlan(tuple(chunks), tuple(dead), tuple(s.request_id for s in new), padded=True)

    def leave(self, done):
        pass


class HighestSlotFirst(Right):
    """Other slots than the package's, and a memory of its own size."""

    def __init__(self, max_num_seqs=8, memory=None):
        super().__init__(max_num_seqs, memory or ContiguousMemory(max_num_seqs * 4096, 4096))

    def admit(self, now):
        admitted = super().admit(now)
        for sequence, slot in zip(admitted, sorted((s.slot for s in admitted), reverse=True)):
            sequence.slot = slot
        return admitted


class LeavesAtOnce(Right):
    """A finished one gives its slot back at once: no dead rows, though the door stays shut."""

    def leave(self, done):
        Scheduler.leave(self, done)


class OpensForAFreeSlot(LeavesAtOnce):
    """Iteration-level, that is."""

    def may_open(self, now):
        return True


class DoorAjar(Right):
    """Asks ready() while a batch runs, too: whoever has waited long enough takes a slot that was never filled."""

    def may_open(self, now):
        return self.may_start(now)


class LosesTheLast(Right):
    """Releases those who finish last, and keeps the others for ever."""

    def leave(self, done):
        if all(sequence.is_finished for sequence in self.running):
            super(Right, self).leave(done)


class NeverReleases(Right):
    def leave(self, done):
        pass


class LeavesWithTheFirst(Right):
    """The whole batch ends with the shortest answer."""

    def leave(self, done):
        Scheduler.leave(self, list(self.running))


class GivesMemoryBack(Right):
    """Keeps the slot and not the memory."""

    def leave(self, done):
        for sequence in done:
            self.memory.release(sequence)
        if all(sequence.is_finished for sequence in self.running):
            self.unseat(list(self.running))


def with_row(name, row):
    """Dead rows as `row` says, from a sequence's slot and its stored tokens: (start, count)."""
    return type(name, (Right,), {"row": lambda self, one: Chunk(one, one.slot, *row(one.num_computed_tokens))})


def with_plan(name, change):
    """The right plan, and then something else: `change` of the scheduler and the plan."""

    def schedule(self, now):
        return change(self, Right.schedule(self, now))

    return type(name, (Right,), {"schedule": schedule})


def goes_on_computing(self, plan):
    return StepPlan(tuple(map(next_chunk, self.running)), (), plan.admitted, padded=True)


def everybody_entered(self, plan):
    return replace(plan, admitted=tuple(sequence.request_id for sequence in self.running))


class ShortestFirst(Right):
    """Fills the batch by length."""

    def admit(self, now):
        ordered = sorted(self.waiting, key=lambda sequence: sequence.request.sampling.max_new_tokens)
        self.waiting.clear()
        self.waiting.extend(ordered)
        return super().admit(now)


class NewestFirst(Right):
    def admit(self, now):
        self.waiting.reverse()
        admitted = super().admit(now)
        self.waiting.reverse()
        return admitted


class OneLess(Right):
    """An off by one: never fills the last slot."""

    def admit(self, now):
        last = self.waiting.pop() if len(self.waiting) > 1 else None
        admitted = super().admit(now)
        if last:
            self.waiting.append(last)
        return admitted


def with_door(ready, name):
    return type(name, (Right,), {"ready": staticmethod(ready)})


BATCHER = {
    "name": "Batcher",
    "checks": {"batches": check_batches, "dead_rows": check_dead_rows, "closing": check_closing},
    "right": [Right, ReleasesWhenAskedAgain, HighestSlotFirst, with_door(ready_nested, "AnotherDoor")],
    "wrong": [
        (LeavesAtOnce, "no dead row"),
        (OpensForAFreeSlot, "has not ended"),
        (DoorAjar, "door is closed"),
        (LosesTheLast, "still taken"),
        (NeverReleases, "still taken"),
        (LeavesWithTheFirst, "B"),
        (GivesMemoryBack, "memory has been given back"),
        (with_row("RowAtTheNextPosition", lambda stored: (stored, 1)), "never stored"),
        (with_row("RowAtThePrompt", lambda stored: (0, 1)), "positions after it"),
        (with_row("RowOfEverything", lambda stored: (0, stored)), "one is computed"),
        (with_plan("NoDeadRows", lambda self, plan: replace(plan, dead=())), "no dead row"),
        (with_plan("GoesOnComputing", goes_on_computing), "has ended"),
        (with_plan("NotPadded", lambda self, plan: replace(plan, padded=False)), "padded=True"),
        (with_plan("SaysNobodyEntered", lambda self, plan: replace(plan, admitted=())), "`admitted`"),
        (with_plan("SaysEverybodyEntered", everybody_entered), "`admitted`"),
        (ShortestFirst, "first in line"),
        (NewestFirst, "order of arrival"),
        (OneLess, "a slot is free"),
        (with_plan("GivesChunks", lambda self, plan: plan.chunks), "StepPlan"),
        (with_door(clock(max), "EachArrivalStartsTheClock"), "wake_at"),
        (with_door(clock(min, strict=True), "NeverQuite"), "wake_at"),
        (with_door(ready_nobody, "KnowsTheFuture"), "too early"),
        (with_door(lambda arrivals, now, num_slots, more: bool(arrivals), "AtOnce"), "too early"),
        (with_door(lambda arrivals, now, num_slots, more: len(arrivals) >= num_slots, "OnlyFull"), "wake_at"),
        (IterationScheduler, "has not ended"),
        (lambda max_num_seqs: Right(max_num_seqs), "class"),
    ],
}


# The record of a run.


def read_pairwise(trace):
    live = [len(step.live) for step in trace.steps]
    lost = 0
    for step in trace.steps:
        free = len(step.dead)
        lost += step.waiting if step.waiting < free else free
    return [sum(live) / len(live), float(lost)]


def read_by_slot(trace):
    tokens = sum(len(record.tokens) for record in trace.requests.values())
    return tokens / trace.steps[-1].step, sum(len(step.dead[: step.waiting]) for step in trace.steps)


def reading(live=None, lost=None):
    """The right pair with one of the two as somebody counts it: functions of the steps and the trace."""

    def read_trace(trace):
        right = read_pairwise(trace)
        return live(trace.steps, trace) if live else right[0], lost(trace.steps, trace) if lost else right[1]

    return read_trace


def live_slots(steps):
    return sum(len(step.live) for step in steps)


READ = {
    "name": "read_trace",
    "checks": {"mean_live": check_mean_live, "lost": check_lost},
    "right": [read_pairwise, read_by_slot],
    "wrong": mistakes(
        live_in_all=(reading(live=lambda steps, _: live_slots(steps)), "mean over the steps"),
        live_per_second=(reading(live=lambda steps, _: live_slots(steps) / steps[-1].end), "per second"),
        share_live=(reading(live=lambda s, trace: live_slots(s) / len(s) / trace.num_slots), "share"),
        dead_ones_live=(
            reading(live=lambda steps, _: sum(len(s.live + s.dead) for s in steps) / len(steps)),
            "not live",
        ),
        tokens=(reading(live=lambda steps, _: sum(w.count for s in steps for w in s.live) / len(steps)), "tokens"),
        configured=(reading(live=lambda _, trace: trace.num_slots), "entries"),
        all_dead=(reading(lost=lambda steps, _: sum(len(s.dead) for s in steps)), "nobody waits for"),
        all_dead_if_any_waits=(
            reading(lost=lambda steps, _: sum(len(s.dead) for s in steps if s.waiting)),
            "not all of",
        ),
        all_who_wait=(reading(lost=lambda steps, _: sum(s.waiting for s in steps if s.dead)), "no more than"),
        steps_lost=(reading(lost=lambda steps, _: sum(bool(s.dead and s.waiting) for s in steps)), "those are steps"),
        empty_ones_too=(
            reading(lost=lambda steps, t: sum(min(t.num_slots - len(s.live), s.waiting) for s in steps)),
            "is empty, not dead",
        ),
        share_lost=(reading(lost=lambda steps, _: sum(len(s.dead) for s in steps) / 100), "share"),
        visible_example=(reading(lost=lambda *_: 2), "could the queue"),
        one_number=(lambda trace: read_pairwise(trace)[0], "pair"),
        turned_round=(lambda trace: read_pairwise(trace)[::-1], "in their order"),
    ),
}

TABLE = {"bill": BILL, "rectangle": RECTANGLE, "ready": READY, "batcher": BATCHER, "read_trace": READ}

OTHER_YEAR = [
    ("wasted", {"rows": "all"}, bill_step_by_step, "num_slots rows"),
    ("rows", {"pad_side": "right"}, rectangle_by(), "right"),
    ("positions", {"pad_side": "right"}, rectangle_by(), "last column holds padding"),
    ("door", {"closes": "nobody"}, ready_counted, "nobody else is coming"),
    ("door", {"max_wait": 3.0}, ready_counted, "of 3"),
    ("closing", {"closes": "nobody"}, Right, "too late"),
    ("closing", {"max_wait": 5.0}, Right, "too early"),
]
