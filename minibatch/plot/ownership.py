"""Who owns which block of the K/V pool at each step, read off a trace's memory events.

A block with several owners is shared. Its bar is named after them, "A+B" or "A+2 more", and has the colour of the
oldest. A sequence's block table is its blocks in order of position.
"""

from collections.abc import Iterator
from typing import NamedTuple

from minibatch.plot.bars import OWNED, SHARED, Bar, span
from minibatch.plot.colours import Traces, named, palette_of
from minibatch.trace import Trace

Owners = dict[int, tuple[str, ...]]  # block -> who has it in a table, oldest first; a free block is absent


class Books:
    """Tables and owners while events are replayed, one by one."""

    def __init__(self) -> None:
        self.owners: Owners = {}
        self.tables: dict[str, list[int]] = {}

    def replay(self, kind: str, request_id: str, block: int) -> None:
        """One MemoryEvent. What is taken or shared goes to the end of a table: only a last block is ever replaced."""
        table, owners = self.tables.setdefault(request_id, []), self.owners.get(block, ())
        if kind != "give":
            table.append(block)
            self.owners[block] = (*owners, request_id)
            return
        if table[-1] == block:  # a whole table is given back from its end, and some are long
            table.pop()
        else:
            table.remove(block)
        left = tuple(one for one in owners if one != request_id)
        if left:
            self.owners[block] = left
        else:
            del self.owners[block]


def books(trace: Trace) -> Iterator[Books]:
    """The books while each step ran. Always the same object: read it before asking for the next.

    Raises ValueError for a trace whose memory was not paged.
    """
    if trace.block_size is None:
        raise ValueError(f"trace of {trace.scheduler!r} has no blocks: its memory was contiguous, not a PagedMemory")
    state = Books()
    for record in trace.steps:
        for event in record.memory_events:
            state.replay(*event)
        yield state


def num_blocks(trace: Trace) -> int:
    """Blocks in the pool; 1 where no step has run, for nobody knows."""
    return trace.steps[0].memory.capacity // trace.block_size if trace.steps else 1


def name_of(owners: tuple[str, ...]) -> str:
    """What a block is called after its owners."""
    first, *others = owners
    return first if not others else f"{first}+{others[0]}" if len(others) == 1 else f"{first}+{len(others)} more"


def block_bars(trace: Trace, axis: str = "steps") -> list[Bar]:
    """A bar for each stretch of steps in which a block keeps its owners, by block, then in time."""
    done: list[Bar] = []
    current: dict[int, tuple[tuple[str, ...], Bar]] = {}
    for record, state in zip(trace.steps, books(trace)):
        left, right = span(record, axis)
        for block, owners in state.owners.items():
            before, bar = current.get(block, ((), None))
            if before == owners and bar.last == record.step - 1:
                current[block] = owners, bar._replace(last=record.step, right=right)
                continue
            done += [bar] if bar else []
            kind = SHARED if len(owners) > 1 else OWNED
            current[block] = owners, Bar(block, name_of(owners), kind, record.step, record.step, left, right)
    return sorted(done + [bar for _, bar in current.values()], key=lambda bar: (bar.slot, bar.first))


def block_colours(traces: Traces) -> dict[str, str]:
    """Colour of every request, and of every name of a shared block: its oldest owner's."""
    colours = palette_of(traces)
    for _, trace in named(traces):
        for state in books(trace):
            colours = {name_of(owners): colours[owners[0]] for owners in state.owners.values()} | colours
    return colours


class Layout(NamedTuple):
    """One sequence's table while a step ran."""

    request_id: str
    step: int
    table: list[int]
    filled: int  # positions stored by the end of the step: [0, filled)
    owners: Owners  # of the whole pool


def layout(trace: Trace, request_id: str, step: int) -> Layout:
    """The block table of a request at a step. Raises ValueError if it holds no block then."""
    if not 1 <= step <= len(trace.steps):
        raise ValueError(f"step={step!r}: steps run from 1 to {len(trace.steps)}")
    state = next(state for record, state in zip(trace.steps, books(trace)) if record.step == step)
    table = state.tables.get(request_id)
    if not table:
        raise ValueError(f"request_id={request_id!r}: holds no block in step {step}")
    mine = (w for record in trace.steps[:step] for w in record.live if w.request_id == request_id)
    *_, last = mine
    return Layout(request_id, step, list(table), last.start + last.count, dict(state.owners))
