"""Checks of lab 1, what must be run: the reader's static batcher, and what a reader reads off the record of a run."""

from collections.abc import Callable, Iterable, Iterator

from minibatch.checks.base import CheckFailed, call, need, same, short
from minibatch.checks.lab1 import expect_part
from minibatch.checks.serving import requests_of, serve
from minibatch.schedulers import DynamicBatcher, IterationScheduler, Scheduler, StaticBatcher
from minibatch.simulate import ScriptedExecutor
from minibatch.trace import StepRecord, Trace

# Lengths, slots, arrivals. Every batch gets full, so its door closes alike under any rule.
_FULL = [([1], 1, None), ([1, 3], 2, None), ([2, 4, 2, 2], 2, None), ([3, 3, 1, 1], 2, None)]
_FULL += [([4, 1, 2, 1, 5, 1], 3, None), ([3, 5, 2, 2], 2, [0, 0, 1, 1]), ([2, 1, 1, 6, 3, 1], 2, [0, 0, 1, 1, 20, 20])]
_FULL += [([1, 7, 2, 2, 6, 1, 1, 3], 4, [0, 0, 0, 0, 2, 3, 4, 5])]


def check_batches(batcher: type[Scheduler]) -> None:
    """Who is in which step: a batch runs until all have ended, then the next in line enter."""
    for lengths, slots, arrivals in _FULL:
        told, trace, right = _both(batcher, StaticBatcher(slots), lengths, arrivals)
        for seen, wanted in zip(trace.steps, right.steps):
            if why := _who_hint(seen, wanted):
                raise CheckFailed(f"{told}: in step {wanted.step} {why}", trace=trace)


def _who_hint(seen: StepRecord, right: StepRecord) -> str:
    got, want = ([work.request_id for work in record.live] for record in (seen, right))
    early, missing = sorted(set(got) - set(want)), sorted(set(want) - set(got))
    if early and not right.admitted:
        return f"{_names(early)} runs, and the batch of {_names(want)} has not ended"
    if early and missing:
        return f"{_names(early)} runs instead of {_names(missing)}, first in line"
    if missing:
        started = (
            "is not in the batch; it waits, and a slot is free" if right.admitted else "is left out and has not ended"
        )
        return f"{_names(missing)} {started}"
    if list(seen.admitted) != list(right.admitted):
        return f"`admitted` is {short(seen.admitted)}; it names those who got their slot just now, in order of arrival"
    return ""


def check_dead_rows(batcher: type[Scheduler]) -> None:
    """Who has ended keeps slot and memory to the batch's end, and is computed: its last stored position over again."""
    for lengths, slots, prompts in [([1, 3], 2, 1), ([2, 5, 3], 3, [4, 1, 2]), ([1, 2, 4, 3], 2, [2, 3, 1, 5])]:
        told, trace, right = _both(batcher, StaticBatcher(slots), lengths, prompts=prompts)
        for seen, wanted in zip(trace.steps, right.steps):
            if why := _dead_hint(seen, wanted):
                raise CheckFailed(f"{told}: in step {wanted.step} {why}", trace=trace)


def _dead_hint(seen: StepRecord, right: StepRecord) -> str:
    got, want = ({work.request_id: work for work in record.dead} for record in (seen, right))
    if lacking := sorted(want.keys() - got.keys()):
        return f"{_names(lacking)} has ended and its batch has not, and there is no dead row for it"
    if extra := sorted(got.keys() - want.keys()):
        return f"{_names(extra)} has a dead row, and its batch has ended"
    for name, work in got.items():
        if work.count != 1:
            return f"the dead row of {name} has {work.count} tokens; one is computed over again"
        if work.start > want[name].start:
            return f"the dead row of {name} is position {work.start}, which was never stored; no last token is fed back"
        if work.start < want[name].start:
            return f"the dead row of {name} is position {work.start}; positions after it have been computed, too"
    if seen.memory.reserved < right.memory.reserved:
        return "memory has been given back while the batch runs; a dead row still reads its K and V"
    if seen.padding_tokens != right.padding_tokens:
        return f"no rectangle is computed ({seen.padding_tokens} padding tokens): every step of it is padded=True"
    return ""


def check_closing(batcher: type[Scheduler], closes: str = "oldest", max_wait: float = 2.0) -> None:
    """When a batch that is not full starts, and with whom, by the rule `closes`. `max_wait` in seconds."""
    w = max_wait
    for lengths, slots, arrivals in [
        ([1], 2, [0]),
        ([1, 1], 4, [0, w - 0.5]),
        ([1, 1, 1, 1], 4, [0, w - 0.5, w + 1, w + 2.5]),
        ([1, 1, 1, 1, 1], 4, [1, 1, 1, 1, 2.5]),
        ([9, 1, 1], 2, [0, 0, 1]),
        ([3, 1, 1], 2, [0, 0, 2.5]),
        ([9, 1, 1], 3, [0, w + 1, w + 1.5]),  # a slot of the running batch is free, and the others wait long enough
        ([2, 1, 1, 1], 3, [0, 0.5, 40, 41]),
    ]:
        package = DynamicBatcher(slots, max_wait=w) if closes == "oldest" else StaticBatcher(slots)
        told, trace, right = _both(batcher, package, lengths, arrivals)
        for (at, who, already), (due, members, _) in zip(_starts(trace), _starts(right)):
            said = f"{told}: {_names(who)} started at {at:g} s"
            if already:
                raise CheckFailed(f"{said} in the batch of {_names(already)}, whose door is closed", trace=trace)
            rule = f"by the rule {closes!r}" + (f" and max_wait={w:g}" if closes == "oldest" else "")
            if at != due:
                raise CheckFailed(f"{said}, {rule} too {'early' if at < due else 'late'}", trace=trace)
            if who != members:
                raise CheckFailed(f"{said}: in the batch is who waits when the door closes, all of them", trace=trace)


def _starts(trace: Trace) -> Iterator[tuple[float, tuple[str, ...], list[str]]]:
    """When somebody entered, who, and who was there already."""
    for record in trace.steps:
        if record.admitted:
            inside = [work.request_id for work in (*record.live, *record.dead)]
            yield record.start, record.admitted, [name for name in inside if name not in record.admitted]


def _names(ids: Iterable[str]) -> str:
    return " and ".join(ids)


def _both(
    batcher: type[Scheduler],
    package: Scheduler,
    lengths: list[int],
    arrivals: list[float] | None = None,
    prompts: int | list[int] = 1,
) -> tuple[str, Trace, Trace]:
    """The case in words, its trace under the reader's batcher and under the package's."""
    slots = package.max_num_seqs
    told = f"lengths {lengths} on {slots} slot{'s' * (slots > 1)}"
    told += f", arrivals {[float(time) for time in arrivals]}" if arrivals else ""
    told += f", prompts of {prompts} tokens" if prompts != 1 else ""
    requests = requests_of(lengths, arrivals, prompts)
    right = serve(package, requests)
    need(isinstance(batcher, type), f"a class is wanted, not {short(batcher)}")
    mine = serve(call(batcher, slots), requests, told=told, most_steps=10 * len(right.steps))
    return told, mine, right


class _Run(Trace):
    def __repr__(self) -> str:
        """What a message calls it."""
        lengths = [len(record.tokens) for record in self.requests.values()]
        return f"trace of answers {lengths} on {self.num_slots} slots"


def _runs() -> Iterator[_Run]:
    for scheduler, lengths, arrivals, prompts in [
        (StaticBatcher(2), [2, 4, 2], None, 1),
        (StaticBatcher(2), [5, 5], None, 1),
        (StaticBatcher(2), [3, 1], None, 1),
        (StaticBatcher(4), [1, 1, 1, 5, 2], None, 3),
        (StaticBatcher(3), [1, 4, 6, 1, 1, 1, 1], None, [4, 2, 1, 1, 1, 2, 3]),
        (DynamicBatcher(4, max_wait=0), [1, 8, 1, 1], [0, 0, 0.5, 0.5], 1),
        (IterationScheduler(2), [2, 4, 2], None, 1),
    ]:
        some = requests_of(lengths, arrivals, prompts)
        trace = serve(scheduler, some, ScriptedExecutor(seconds_per_step=0.25))
        yield _Run(trace.scheduler, trace.num_slots, None, trace.steps, trace.requests)


def check_mean_live(function: Callable) -> None:
    """`function(trace)[0]`: live slots on average over the steps of a run."""
    for trace in _runs():
        want = sum(len(step.live) for step in trace.steps) / len(trace.steps)
        expect_part(function, (trace,), 0, want, _live_hint)


def _live_hint(got: object, trace: Trace) -> str:
    steps = trace.steps
    live, dead = (sum(len(getattr(step, what)) for step in steps) for what in ("live", "dead"))
    if same(got, live):
        return "those are all live slot-steps; the mean over the steps is wanted"
    if same(got, live / steps[-1].end):
        return "that is live slot-steps per second; a step here takes a quarter of one"
    if same(got, live / len(steps) / trace.num_slots):
        return "that is a share; a number of slots is wanted"
    if same(got, (live + dead) / len(steps)):
        return "a dead slot is not live"
    if same(got, sum(work.count for step in steps for work in step.live) / len(steps)):
        return "those are tokens; a prompt of many tokens takes one slot"
    return "(the first of the two) a step has as many live slots as entries in `live`"


def check_lost(function: Callable) -> None:
    """`function(trace)[1]`: dead slot-steps that somebody in the queue could have used."""
    for trace in _runs():
        want = sum(min(len(step.dead), step.waiting) for step in trace.steps)
        expect_part(function, (trace,), 1, want, _lost_hint)


def _lost_hint(got: object, trace: Trace) -> str:
    steps = trace.steps
    if same(got, sum(len(step.dead) for step in steps if step.waiting)):
        return "with more dead slots than requests in the queue, not all of them are lost"
    if same(got, sum(len(step.dead) for step in steps)):
        return "those are all dead slot-steps; a dead slot that nobody waits for is not lost"
    if same(got, sum(min(trace.num_slots - len(step.live), step.waiting) for step in steps)):
        return "a slot that nobody holds is empty, not dead"
    if same(got, sum(step.waiting for step in steps if step.dead)):
        return "with more requests in the queue than dead slots, no more than the dead slots are lost"
    if same(got, sum(bool(step.dead and step.waiting) for step in steps)):
        return "those are steps; two slots lost in one step are two slot-steps"
    if isinstance(got, float) and 0 < got < 1:
        return "that is a share; slot-steps are wanted"
    return "(the second of the two) in each step, how many of its dead slots could the queue have filled?"
