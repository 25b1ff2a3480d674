"""Where the K/V pool goes: in every step of a run each of its positions is one of four kinds. See notebook 05.

    used       holds the K and V of a token
    reserved   is empty now, and its holder will fill it before it leaves
    internal   belongs to a holder that will never fill it
    external   belongs to nobody: it is free, or cut off by a buddy allocator

Which empty position will be filled is known only afterwards, so this reads a `Trace` and not a memory. The four
kinds are those of the vLLM paper's figure 2 (its "external fragmentation & others" is our external).
"""

from collections import Counter
from statistics import fmean
from typing import NamedTuple

from minibatch.trace import StepRecord, Trace


class Split(NamedTuple):
    """K/V positions by kind, or their shares of the pool. All four together are the whole pool."""

    used: float
    reserved: float
    internal: float
    external: float


def splits(trace: Trace) -> list[Split]:
    """The pool during each step, in positions, at the step's end and before those who finished in it left.

    Memory may be contiguous or paged; with shared blocks the question of whose waste it is has no answer, so they are
    refused with ValueError. Dead rows of a static batch hold tokens, and count as used. For a request that had not
    ended when the run did, what it had stored by then is all it will.
    """
    will_store: Counter[str] = Counter()  # request -> positions filled when it left
    for record in trace.steps:
        for work in _computed(record):
            will_store[work.request_id] = max(will_store[work.request_id], work.start + work.count)
    rooms: Counter[str] = Counter()  # request -> positions it holds
    stored: dict[str, int] = {}
    found = []
    for record in trace.steps:
        _apply(record, rooms, stored, trace.block_size)
        used = sum(stored.get(name, 0) for name in rooms)
        filled = sum(min(will_store[name], room) for name, room in rooms.items())
        taken = sum(rooms.values())
        found.append(Split(used, filled - used, taken - filled, record.memory.capacity - taken))
    return found


def mean_split(trace: Trace, skip: int = 0) -> Split:
    """Mean shares of the pool over the steps after the first `skip` in which somebody waited, each counted alike.

    An empty queue is no waste of the allocator's, and at the start all requests are equally young. Raises ValueError
    if there is no such step.
    """
    counted = [
        [positions / record.memory.capacity for positions in split]
        for record, split in zip(trace.steps[skip:], splits(trace)[skip:])
        if record.waiting
    ]
    if not counted:
        raise ValueError(f"skip={skip!r}: in no step after it did a request wait; {len(trace.steps)} steps in all")
    return Split(*(fmean(kind) for kind in zip(*counted)))


def _computed(record: StepRecord) -> tuple:
    return () if record.error else record.live


def _apply(record: StepRecord, rooms: Counter[str], stored: dict[str, int], block_size: int | None) -> None:
    """Bring who holds how much, and who has stored how much, up to the end of this step."""
    for event in record.memory_events:
        if event.kind == "share":
            raise ValueError(
                f"step {record.step}: {event.request_id!r} shares block {event.block}; waste is nobody's then"
            )
        size = block_size or event.length
        rooms[event.request_id] += size if event.kind == "take" else -size
        if not rooms[event.request_id]:
            del rooms[event.request_id]
            stored.pop(event.request_id, None)
    for work in _computed(record):
        stored[work.request_id] = work.start + work.count
