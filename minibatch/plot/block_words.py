"""What the pictures of memory show, in words: headings, captions, alt texts."""

from minibatch.plot.bars import SHARED, Bar
from minibatch.plot.colours import Traces, named
from minibatch.plot.ownership import block_bars, books, layout, num_blocks
from minibatch.plot.words import SPELT_OUT, listing, plural
from minibatch.trace import Trace


def block_numbers(trace: Trace) -> list[str]:
    """What a block map carries: the pool, most blocks taken at once, most shared, how full the taken ones are."""
    states = [(len(s.owners), sum(len(o) > 1 for o in s.owners.values())) for s in books(trace)]
    taken, shared = (max(each, default=0) for each in zip(*states)) if states else (0, 0)
    pool = f"{plural(num_blocks(trace), 'block')} of {trace.block_size}"
    most = f"at most {taken:,} taken" + (f", {shared:,} shared" if shared else "")
    return [pool if trace.steps else f"blocks of {trace.block_size}", most, *_fullness(trace)]


def memory_numbers(trace: Trace) -> list[str]:
    """What a memory strip carries: how many at once, and the two shares, each the mean over steps."""
    live = [len(record.live) for record in trace.steps]
    if not live:
        return ["no step has run"]
    capacity = trace.steps[0].memory.capacity
    used = sum(record.memory.used for record in trace.steps) / (len(live) * capacity)
    said = [plural(len(live), "step"), f"{sum(live) / len(live):.2f} sequences at once on average"]
    return [*said, *_fullness(trace), f"{used:.0%} of the pool used"]


def _fullness(trace: Trace) -> list[str]:
    """The share of taken positions that hold a token, over the whole run."""
    taken = sum(record.memory.reserved for record in trace.steps)
    return [f"{sum(record.memory.used for record in trace.steps) / taken:.0%} of taken positions used"] if taken else []


def blocks_caption(traces: Traces) -> str:
    """One sentence with the numbers of the block map."""
    return _sentence(traces, block_numbers)


def memory_caption(traces: Traces) -> str:
    """One sentence with the numbers of the memory strips."""
    return _sentence(traces, memory_numbers)


def _sentence(traces: Traces, numbers) -> str:
    return "; ".join(f"{name}: {', '.join(numbers(trace))}" for name, trace in named(traces)) + "."


def blocks_alt(traces: Traces) -> str:
    """The block map in words, for who does not see it."""
    opening = "Blocks of the K/V pool over time, a bar for each stretch in which a block keeps its owners: in the "
    opening += "owner's colour, cross-hatched where several share it, white where it is free."
    return " ".join([opening, *(_described(name, trace) for name, trace in named(traces))])


def memory_alt(traces: Traces) -> str:
    """The memory strips in words."""
    opening = "K/V positions over time: dark, those that hold a token; light above it, those taken and still empty; "
    return f"{opening}white, the rest of the pool. {memory_caption(traces)}"


def _described(name: str, trace: Trace) -> str:
    words, all_bars = f"{name}: {', '.join(block_numbers(trace))}.", block_bars(trace)
    if len(all_bars) > SPELT_OUT:
        return words
    by_block: dict[int, list[str]] = {}
    for bar in all_bars:
        by_block.setdefault(bar.slot, []).append(_bar(bar))
    listed = "; ".join(f"block {block}: {', '.join(row)}" for block, row in by_block.items())
    return f"{words} B{listed[1:]}." if listed else words


def _bar(bar: Bar) -> str:
    shared = " (shared)" if bar.kind == SHARED else ""
    return f"{bar.request_id}{shared} {bar.first}" + (f" to {bar.last}" if bar.last > bar.first else "")


def table_caption(trace: Trace, request_id: str, step: int) -> str:
    """One sentence: the table, how far it is filled, what is shared."""
    seen = layout(trace, request_id, step)
    room = len(seen.table) * trace.block_size
    shared = [str(block) for block in seen.table if len(seen.owners[block]) > 1]
    more = f"; shared: {listing(shared)}" if shared else ""
    return (
        f"Step {step}: the table of {request_id} is {seen.table}, with {seen.filled} of {room} positions filled{more}."
    )


def table_alt(trace: Trace, request_id: str, step: int) -> str:
    """The drawn block table in words."""
    seen = layout(trace, request_id, step)
    where = [f"logical block {place} in block {block}" for place, block in enumerate(seen.table)]
    others = num_blocks(trace) - len(seen.owners)
    return (
        f"Above, the positions of {request_id} in order, {trace.block_size} to a logical block; below, the pool, with "
        f"a line from each logical block to the block it lies in: {listing(where)}. {plural(seen.filled, 'position')} "
        f"filled; {plural(others, 'block')} of the pool free."
    )
