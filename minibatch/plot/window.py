"""`cut`: some steps of a long run as a trace of their own, for the pictures. Introduced in notebook 09."""

from dataclasses import replace

from minibatch.plot.ownership import Books
from minibatch.step import MemoryEvent
from minibatch.trace import StepRecord, Trace


def cut(trace: Trace, first: int, last: int) -> Trace:
    """Steps `first` to `last`, both counted, numbered from 1 again; their times stay.

    What was held before step `first` comes back as taken in it, so the maps of memory are right from the start. Slots
    above the highest one in use are left out, and so are requests that compute nothing in these steps.
    """
    if not 1 <= first <= last <= len(trace.steps):
        raise ValueError(f"first={first!r}, last={last!r}: steps run from 1 to {len(trace.steps)}")
    chosen = trace.steps[first - 1 : last]
    held = _blocks_held(trace.steps[: first - 1]) if trace.block_size else _regions_held(trace.steps[: first - 1])
    steps = [replace(record, step=number) for number, record in enumerate(chosen, 1)]
    steps[0] = replace(steps[0], memory_events=held + steps[0].memory_events)
    rows = [work for record in chosen for work in record.live + record.dead]
    present = {work.request_id for work in rows} | {event.request_id for event in _events(steps)}
    return Trace(
        trace.scheduler,
        max((work.slot + 1 for work in rows), default=1),
        trace.block_size,
        steps,
        {name: record for name, record in trace.requests.items() if name in present},
    )


def _events(steps: list[StepRecord]):
    return (event for record in steps for event in record.memory_events)


def _blocks_held(before: list[StepRecord]) -> tuple[MemoryEvent, ...]:
    """The block tables after these steps, as if taken at once; who shares a block keeps its place among the owners."""
    state = Books()
    for event in _events(before):
        state.replay(*event)
    return tuple(
        MemoryEvent("take", request_id, block) for request_id, table in state.tables.items() for block in table
    )


def _regions_held(before: list[StepRecord]) -> tuple:
    """The regions that nobody has given back."""
    held = {}
    for event in _events(before):
        if event.kind == "give":
            del held[event.request_id]
        else:
            held[event.request_id] = event
    return tuple(held.values())
