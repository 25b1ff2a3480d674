"""`pool`: the block map of a pool too large for a row a block. Introduced in notebook 09.

`blocks` draws every block and writes its owner's name in it. A card has thousands: here they are a picture of so many
pixels, one row in so many blocks.
"""

from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from minibatch.plot.bars import extent, last_step
from minibatch.plot.blocks import CLOSE, STRIP
from minibatch.plot.colours import EMPTY, PALETTE, QUIET, ink, palette_of
from minibatch.plot.ownership import books, num_blocks
from minibatch.plot.page import Panel, Strip, Swatch, draw_page, inner_width, of_kind
from minibatch.plot.strips import Scale, draw_memory
from minibatch.plot.words import plural
from minibatch.trace import Trace

MOST_ROWS, HEIGHT = 360, 2.4  # of the map: pixels, inches
SMALLEST_LABEL = 0.14  # inches that a name needs


def pool(trace: Trace, title: str | None = None, width: float = 10.0) -> Figure:
    """Blocks down, steps to the right, each block in its owner's colour, free ones white; below, the memory strip.

    Where the pool has more than `MOST_ROWS` blocks, the map shows one in so many, and its heading says so. Raises
    ValueError for memory that is not paged.
    """
    inner = inner_width(width)
    scale = Scale("steps", extent(trace), inner, last_step(trace), 0, palette_of(trace))
    strips = [
        Strip("blocks", HEIGHT, partial(_draw_map, scale=scale, trace=trace)),
        Strip("memory", STRIP, partial(draw_memory, scale=scale, trace=trace), CLOSE),
    ]
    swatches = [_owned(), of_kind("empty", "free")]
    return draw_page([Panel(trace.scheduler, pool_numbers(trace), strips)], scale, swatches, width, title)


def pool_numbers(trace: Trace) -> list[str]:
    """What the heading says: the pool, most blocks taken at once, how full these are, which blocks are drawn."""
    taken = [record.memory.reserved for record in trace.steps] or [0]
    full = sum(record.memory.used for record in trace.steps) / max(sum(taken), 1)
    said = [f"{plural(num_blocks(trace), 'block')} of {trace.block_size}"]
    said += [f"at most {max(taken) // trace.block_size:,} taken", f"{full:.0%} of taken positions used"]
    return [*said, *([f"one block in {_every(trace)} drawn"] if _every(trace) > 1 else [])]


def pool_alt(trace: Trace) -> str:
    """The map in words."""
    opening = "Blocks of the K/V pool down, steps to the right, each block in its owner's colour and white where free; "
    return f"{opening}below, the positions that hold a token. {trace.scheduler}: {', '.join(pool_numbers(trace))}."


def owners_map(trace: Trace) -> list[list[str]]:
    """The oldest owner of each drawn block at each step, "" where it is free: [drawn blocks][steps]."""
    drawn, nobody = range(0, num_blocks(trace), _every(trace)), ("",)
    by_step = [[state.owners.get(block, nobody)[0] for block in drawn] for state in books(trace)]
    return [list(row) for row in zip(*by_step)]


def _every(trace: Trace) -> int:
    return -(-num_blocks(trace) // MOST_ROWS)


def _draw_map(axes: Axes, scale: Scale, trace: Trace) -> None:
    names, count = owners_map(trace), num_blocks(trace)
    colours = {name: to_rgb(colour) for name, colour in scale.colours.items()} | {"": to_rgb(EMPTY)}
    image = np.array([[colours[name] for name in row] for row in names])
    axes.imshow(image, extent=(0, len(trace.steps), count, 0), aspect="auto", interpolation="nearest", zorder=0.4)
    axes.set(xlim=scale.limits, ylim=(count, 0))
    axes.set_yticks([0, count / 2, count], ["block 0", f"{count // 2:,}", f"{count:,}"], color=QUIET)
    for name, column, top, rows in _tall_runs(names):
        x, y = column + 0.5, (top + rows / 2) * count / len(names)
        axes.text(x, y, name, size=7, ha="left", va="center_baseline", color=ink(scale.colours[name]), clip_on=True)


def _tall_runs(names: list[list[str]]) -> list[tuple[str, int, int, int]]:
    """Neighbouring rows of one owner that are high enough for its name, once each: (name, column, top, rows)."""
    need, found = max(1, round(SMALLEST_LABEL * len(names) / HEIGHT)), {}
    columns = len(names[0]) if names else 0
    for column in range(0, columns, max(1, columns // 6)):
        top = 0
        for row in range(1, len(names) + 1):
            if row < len(names) and names[row][column] == names[top][column]:
                continue
            name = names[top][column]
            if name and row - top >= need and name not in found:
                found[name] = (name, column, top, row - top)
            top = row
    return list(found.values())


def _owned() -> Swatch:
    return of_kind("owned", f"one owner, its colour ({plural(len(PALETTE), 'colour')}, then over again)")
