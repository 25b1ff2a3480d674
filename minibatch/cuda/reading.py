"""Pictures of a small traced run: which lane reads what of K, and one warp that follows the block table.

Pure functions, each returns a matplotlib Figure. Beside each, `..._words` gives its alt text.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minibatch.cuda.pictures import EMPTY, INK, LANES, READ, RULE
from minibatch.cuda.simulated import Run

WORD = 4  # bytes of a column
PALE = ("#DDCC77", "#88CCEE", "#44AA99", "#999933")  # colours that want dark ink
MOST_NUMBERED = 20  # rows that leave room for numbers


class Stretch(NamedTuple):
    """Words [first, end) of a row, read by one lane. `warp` is counted over all blocks of the launch that read."""

    row: int
    first: int
    end: int
    warp: int
    lane: int


def lanes(run: Run, row_starts: Sequence[int], row_bytes: int, titles: Sequence[str], width: float = 8.0) -> Figure:
    """Who reads these rows of `k`: a row a position, a column a word, coloured by warp, with the number of the lane
    (in a tall picture, of the warp).

    `row_starts` are the first bytes of the rows in `k`. A word that several threads read stands in as many panels, in
    the order of block and thread; `titles` names the panels. Raises ValueError unless there is one for each.
    """
    panels = _panels(run, row_starts, row_bytes)
    if len(titles) != len(panels):
        raise ValueError(f"titles={list(titles)!r}: each word is read {len(panels)} times, so {len(panels)} are wanted")
    height = 0.8 + min(0.16 * len(row_starts), 2.6)
    figure = Figure(figsize=(width, height), facecolor=EMPTY, layout="constrained")
    for axes, title, stretches in zip(figure.subplots(1, len(panels), squeeze=False)[0], titles, panels):
        axes.set(xlim=(0, row_bytes // WORD), ylim=(len(row_starts), 0))
        axes.set_title(title, size=9, loc="left", color=INK)
        axes.set_xlabel("element of head_dim", size=8)
        axes.set_ylabel("position", size=8)
        axes.tick_params(length=0, labelsize=7)
        axes.spines[:].set_visible(False)
        for stretch in stretches:
            _draw_stretch(axes, stretch, numbered=len(row_starts) <= MOST_NUMBERED)
        if len(row_starts) > MOST_NUMBERED:
            _name_warps(axes, stretches)
    return figure


def lanes_words(run: Run, row_starts: Sequence[int], row_bytes: int) -> str:
    """`lanes` in words."""
    stretches = [stretch for panel in _panels(run, row_starts, row_bytes) for stretch in panel]
    times = sum(stretch.end - stretch.first for stretch in stretches) * WORD // (row_bytes * len(row_starts))
    wide = sorted({stretch.end - stretch.first for stretch in stretches})
    warps = [len({stretch.warp for stretch in stretches if stretch.row == row}) for row in range(len(row_starts))]
    in_all = len({stretch.warp for stretch in stretches})
    part = "1 warp takes part" if in_all == 1 else f"{in_all} warps take part, {_or(sorted(set(warps)))} in each row"
    read = f"{len(row_starts)} positions of K, each element read {_times(times)}"
    return f"{read}; a lane holds {_or(wide)} of a row. {part}."


def walk(run: Run, cache: tuple[int, int, int], block: int = 0, warp: int = 0, width: float = 8.0) -> Figure:
    """One warp follows the block table: above the entries it read, below the slots of `k`, numbered as they were read.

    `block` and `warp` are those of CUDA; `cache` is (num_blocks, block_size, bytes of a slot).
    """
    num_blocks, block_size, _ = cache
    steps = _steps(run, cache, block, warp)
    figure = Figure(figsize=(width, 2.2), facecolor=EMPTY, layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.2, num_blocks * block_size + 0.2), ylim=(4.3, -0.9))
    axes.axis("off")
    left = (num_blocks * block_size - 3 * len(steps)) / 2
    axes.text(left - 0.5, 0.5, "block table", ha="right", va="center", size=9, color=INK)
    axes.text(-0.1, 2.1, "K in memory", ha="left", va="center", size=9, color=INK)
    for number in range(num_blocks):
        axes.text((number + 0.5) * block_size, 3.95, f"block {number}", ha="center", va="center", size=8, color=INK)
        for slot in range(block_size):
            _box(axes, number * block_size + slot, 2.5, 1, EMPTY)
    for index, (number, order) in enumerate(steps):
        colour, middle = LANES[index % len(LANES)], left + 3 * index + 1.5
        _box(axes, middle - 1.5, 0, 3, colour, str(number))
        axes.text(middle, -0.4, f"[{index}]", ha="center", va="center", size=8, color=INK)
        arrow = {"arrowstyle": "->", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", ((number + 0.5) * block_size, 2.45), (middle, 1.05), arrowprops=arrow)
        for slot, at in order.items():
            _box(axes, number * block_size + slot, 2.5, 1, colour, str(at))
    for number in range(num_blocks):
        axes.add_patch(Rectangle((number * block_size, 2.5), block_size, 1, fill=False, edgecolor=READ, lw=1))
    return figure


def walk_words(run: Run, cache: tuple[int, int, int], block: int = 0, warp: int = 0) -> str:
    """`walk` in words."""
    steps = _steps(run, cache, block, warp)
    each = ", ".join(f"{len(order)} slots of block {number}" for number, order in steps)
    return f"Warp {warp} of CUDA block {block} follows the block table and reads, in this order: {each}."


def _reads(run: Run, array: str) -> np.ndarray:
    """The reads of an array, in the order in which they were made."""
    index = [name.decode() for name in run.arrays["name"]].index(array)
    return run.accesses[(run.accesses["array"] == index) & (run.accesses["operation"] == 0)]


def _panels(run: Run, row_starts: Sequence[int], row_bytes: int) -> list[list[Stretch]]:
    """The readers of each word, by rank: the first of each in the first panel, and so on."""
    reads, starts = _reads(run, "k"), np.asarray(row_starts)
    owner = np.sort(starts).searchsorted(reads["offset"], side="right") - 1
    row = np.argsort(starts)[owner.clip(0)]
    inside = (owner >= 0) & (reads["offset"] < starts[row] + row_bytes)
    warps = {pair: n for n, pair in enumerate(sorted({(a["block"], a["thread"] // 32) for a in reads[inside]}))}
    readers: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for access, at in zip(reads[inside], row[inside].tolist()):
        first = (int(access["offset"]) - row_starts[at]) // WORD
        who = (warps[access["block"], access["thread"] // 32], int(access["thread"]) % 32)
        for word in range(first, first + int(access["size"]) // WORD):
            readers.setdefault((at, word), set()).add(who)
    ranks = max(map(len, readers.values()))
    return [list(_stretches({place: sorted(who)[rank] for place, who in readers.items()})) for rank in range(ranks)]


def _stretches(reader_of: dict[tuple[int, int], tuple[int, int]]):
    """Neighbouring words of one reader become one stretch."""
    for (row, (warp, lane)), group in groupby(sorted(reader_of.items()), key=lambda item: (item[0][0], item[1])):
        words = [word for (_, word), _ in group]
        yield Stretch(row, words[0], words[-1] + 1, warp, lane)


def _steps(run: Run, cache: tuple[int, int, int], block: int, warp: int) -> list[tuple[int, dict[int, int]]]:
    """The blocks of `k` a warp read, in order: the number, and its slots with the place of each in the whole order."""
    _, block_size, slot_bytes = cache
    reads = _reads(run, "k")
    mine = reads[(reads["block"] == block) & (reads["thread"] // 32 == warp)]
    slots = dict.fromkeys((mine["offset"] // slot_bytes).tolist())
    steps: dict[int, dict[int, int]] = {}
    for at, slot in enumerate(slots):
        steps.setdefault(slot // block_size, {})[slot % block_size] = at
    return list(steps.items())


def _draw_stretch(axes: Axes, stretch: Stretch, numbered: bool) -> None:
    row, first, end, warp, lane = stretch
    text = str(lane) if numbered and (end - first >= 2 or lane % 4 == 0) else ""
    _box(axes, first, row, end - first, LANES[warp % len(LANES)], text, size=6.5, lw=0.5 if numbered else 0)


def _name_warps(axes: Axes, stretches: Sequence[Stretch]) -> None:
    """Once for all neighbouring rows that one warp reads, so that the bands are told apart without their colours."""
    warps = {row: {one.warp for one in group} for row, group in groupby(sorted(stretches), key=lambda one: one.row)}
    for warp, group in groupby(sorted(warps), key=lambda row: min(warps[row])):
        rows, colour = list(group), LANES[warp % len(LANES)]
        ink = INK if colour in PALE else EMPTY
        middle = sum(axes.get_xlim()) / 2
        axes.text(middle, (rows[0] + rows[-1] + 1) / 2, f"warp {warp}", ha="center", va="center", size=7, color=ink)


def _box(
    axes: Axes, left: float, top: float, wide: float, colour: str, text: str = "", size: float = 8.5, lw: float = 1.0
) -> None:
    edge = RULE if colour == EMPTY else EMPTY
    axes.add_patch(Rectangle((left, top), wide, 1, facecolor=colour, edgecolor=edge, lw=lw))
    ink = INK if colour in PALE else EMPTY
    axes.text(left + wide / 2, top + 0.52, text, ha="center", va="center", size=size, color=ink)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _or(numbers: list[int]) -> str:
    return " or ".join(map(str, numbers))
