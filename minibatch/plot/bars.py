"""The layout every renderer shares: which bars, how long, where the arrivals and the queue lie.

step      1   2   3   4   5   6            a bar: consecutive steps of one slot, one request, one kind
slot 0    A///A...A xxxxx C///C...         prefill ///, decode ..., dead xxx
slot 1    B///B...........                 on the axis "steps", step s covers [s - 1, s]
"""

from itertools import pairwise
from typing import NamedTuple

from minibatch.plot.colours import Traces, named
from minibatch.trace import StepRecord, Trace

PREFILL, DECODE, DEAD, FAILED = "prefill", "decode", "dead", "failed"  # failed: the step raised, nothing was computed
OWNED, SHARED = "owned", "shared"  # of blocks: by one sequence, by several
AXES = ("steps", "seconds")


class Bar(NamedTuple):
    """Steps `first` to `last` (both counted) of a slot, all for one request and of one kind."""

    slot: int
    request_id: str
    kind: str
    first: int
    last: int
    left: float  # on the axis
    right: float


class Preemption(NamedTuple):
    """A request loses its slot as step `step` is planned, `at` that step's beginning on the axis."""

    slot: int
    request_id: str
    step: int
    at: float


class Waiting(NamedTuple):
    """Queue length over a stretch of the axis: a step, or a time without one."""

    left: float
    right: float
    count: int


def cells(record: StepRecord) -> dict[int, tuple[str, str]]:
    """What each slot in use did in one step: slot to (request id, kind)."""
    live = {w.slot: (w.request_id, FAILED if record.error else PREFILL if w.prefill else DECODE) for w in record.live}
    return live | {work.slot: (work.request_id, DEAD) for work in record.dead}


def span(record: StepRecord, axis: str) -> tuple[float, float]:
    """Where a step lies on the axis."""
    if axis not in AXES:
        raise ValueError(f"axis={axis!r}: must be one of {', '.join(map(repr, AXES))}")
    return (record.start, record.end) if axis == "seconds" else (record.step - 1, record.step)


def bars(trace: Trace, axis: str = "steps") -> list[Bar]:
    """All bars of a trace, by slot, then in time. Together they cover each used (step, slot) exactly once."""
    done: list[Bar] = []
    current: dict[int, Bar] = {}
    for record in trace.steps:
        left, right = span(record, axis)
        for slot, (request_id, kind) in cells(record).items():
            bar = current.get(slot)
            if bar and (bar.request_id, bar.kind, bar.last) == (request_id, kind, record.step - 1):
                current[slot] = bar._replace(last=record.step, right=right)
            else:
                done += [bar] if bar else []
                current[slot] = Bar(slot, request_id, kind, record.step, record.step, left, right)
    return sorted(done + list(current.values()), key=lambda bar: (bar.slot, bar.first))


def holdings(all_bars: list[Bar]) -> list[list[Bar]]:
    """Neighbouring bars of one slot and one request, grouped: prefill, decode and dead time of one stay."""
    groups: list[list[Bar]] = []
    for bar in all_bars:
        last = groups[-1][-1] if groups else None
        if last and (last.slot, last.request_id, last.last + 1) == (bar.slot, bar.request_id, bar.first):
            groups[-1].append(bar)
        else:
            groups.append([bar])
    return groups


def preemptions(trace: Trace, axis: str = "steps") -> list[Preemption]:
    """Who lost a slot, where and when. One that never computed anything since it got its slot leaves no mark."""
    found, seat = [], {}  # request id -> the slot it was last seen in
    for record in trace.steps:
        for request_id in record.preempted:
            if request_id in seat:
                found.append(Preemption(seat.pop(request_id), request_id, record.step, span(record, axis)[0]))
        seat |= {work.request_id: work.slot for work in record.live}
    return found


def waiting(trace: Trace, axis: str = "steps") -> list[Waiting]:
    """Queue length, step by step; on "seconds" also between steps, where a batcher waits for its batch to fill."""
    during = [Waiting(*span(record, axis), record.waiting) for record in trace.steps]
    return during if axis == "steps" else sorted(during + _waiting_between(trace))


def _waiting_between(trace: Trace) -> list[Waiting]:
    """Queue length wherever no step runs, from the first arrival to the last step."""
    requests, found = trace.requests.values(), []
    ends = [min((record.arrival for record in requests), default=0.0), *(record.end for record in trace.steps)]
    for left, right in zip(ends, (record.start for record in trace.steps)):
        times = {left, right, *(r.arrival for r in requests if left < r.arrival < right)} if left < right else ()
        for now, until in pairwise(sorted(times)):
            here = [r for r in requests if r.arrival <= now and (r.finished_at is None or r.finished_at > now)]
            count = sum(r.first_scheduled is None or r.first_scheduled > now for r in here)
            found.append(Waiting(now, until, count))
    return found


def arrivals(trace: Trace, axis: str = "steps") -> dict[str, float]:
    """Where on the axis each request arrives. On "steps", an arrival within a step keeps its share of that step."""
    if axis == "seconds":
        return {record.request_id: record.arrival for record in trace.requests.values()}
    if not trace.steps:
        return dict.fromkeys(trace.requests, 0.0)
    found = {}
    for request_id, step in trace.arrival_steps().items():
        record, arrival = trace.steps[step - 1], trace.requests[request_id].arrival
        share = (arrival - record.start) / (record.end - record.start) if record.end > record.start else 0.0
        found[request_id] = step - 1 + min(max(share, 0.0), 1.0)
    return found


def extent(traces: Traces, axis: str = "steps") -> tuple[float, float]:
    """The axis limits that hold every bar and every arrival of all traces; at least one unit if nothing ran."""
    ends = [end for _, trace in named(traces) for record in trace.steps for end in span(record, axis)]
    ends += [at for _, trace in named(traces) for at in arrivals(trace, axis).values()]
    left, right = min(ends, default=0.0), max(ends, default=0.0)
    return (min(left, 0), max(right, 1)) if axis == "steps" else (left, right if right > left else left + 1)


def last_step(traces: Traces) -> int:
    """Steps of the longest trace."""
    return max(len(trace.steps) for _, trace in named(traces))


def step_ticks(steps: int, most: int) -> list[int]:
    """Step 1 and round numbers after it, about `most` at the most."""
    sizes = (mantissa * 10**power for power in range(12) for mantissa in (1, 2, 5))
    every = next(size for size in sizes if steps / size <= max(most, 2))
    return [1, *(step for step in range(every, steps + 1, every) if step > 1)]
