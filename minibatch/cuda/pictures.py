"""Pictures of a trace: pure functions, each returns a matplotlib Figure. Its alt text is `..._words`."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minibatch.cuda.lines import places
from minibatch.cuda.simulated import Run
from minibatch.cuda.trace import SECTOR, readers, requests, visits_of

# Of Paul Tol's scheme "muted": apart for colour-blind eyes. A notebook's other pictures use the same.
READ, IDEAL, EMPTY, INK, RULE = "#332288", "#44AA99", "#FFFFFF", "#1A1A1A", "#D9DCE0"
LANES = ("#CC6677", "#332288", "#DDCC77", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499")
PALE = ("#DDCC77", "#88CCEE")  # of these: too light for white letters
MOST_SECTORS = 32  # rows of a picture of one request
BYTE = 0.17  # inches


def kv_readers(run: Run, array: str, block_bytes: int, width: float = 8.0) -> Figure:
    """Which CUDA block read which block of a K/V cache: a row a K/V block, a column a CUDA block, dark where it read.

    Arguments as in `trace.readers`. K/V blocks that nobody read have an empty row. `width` in inches.
    """
    seen = readers(run, array, block_bytes)
    rows, columns = seen.shape
    figure = Figure(figsize=(width, max(1.6, 0.22 * rows + 1.0)), facecolor=EMPTY, layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    for row, column in zip(*np.nonzero(seen)):
        axes.add_patch(Rectangle((column - 0.42, row - 0.42), 0.84, 0.84, color=READ, lw=0))
    grid = _grid_of(run, array)
    axes.set(xlabel=f"CUDA block, of a grid of {' x '.join(map(str, grid))}", ylabel=f"block of {array}")
    axes.set_xticks(range(0, columns, max(1, columns // 16)))
    axes.set_yticks(range(0, rows, max(1, rows // 16)))
    _frame(axes)
    return figure


def kv_readers_words(run: Run, array: str, block_bytes: int) -> str:
    """`kv_readers` in words."""
    readers_of = (readers(run, array, block_bytes) > 0).sum(axis=1)
    read = readers_of[readers_of > 0]
    least, most = int(read.min()), int(read.max())
    times = f"{most}" if least == most else f"{least} to {most}"
    return (
        f"{len(read)} of {len(readers_of)} blocks of {array} were read, each by {times} CUDA "
        f"{'block' if most == 1 else 'blocks'}."
    )


def request(run: Run, line: int, array: str | None = None, number: int = 0) -> Figure:
    """One request of one warp to global memory: a row for each sector of 32 bytes it moved, the bytes asked for in the
    colour of their lane. White bytes were moved for nothing.

    The request is the `number`-th made at this source line (of this array). Raises ValueError if there is none.
    """
    accesses, sectors = _one_request(run, line, array, number)
    shown = sectors[:MOST_SECTORS]
    figure = Figure(figsize=(SECTOR * BYTE + 1.6, BYTE * 1.3 * len(shown) + 0.9), facecolor=EMPTY, layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, SECTOR), ylim=(len(shown), 0))
    for row in range(len(shown)):
        axes.add_patch(Rectangle((0, row + 0.1), SECTOR, 0.8, facecolor=EMPTY, edgecolor=RULE, lw=0.8))
    for place in np.unique(accesses[["offset", "size"]]):
        lanes = accesses["thread"][accesses[["offset", "size"]] == place] % 32
        _draw_piece(axes, place, lanes.tolist(), {int(sector): row for row, sector in enumerate(shown)})
    left_out = "" if len(shown) == len(sectors) else f" (the first {len(shown)} of {len(sectors)})"
    axes.set(xlabel=f"byte of the sector{left_out}", ylabel="sector at byte")
    axes.set_xticks(range(0, SECTOR + 1, 4))
    axes.set_yticks([row + 0.5 for row in range(len(shown))], [str(int(sector) * SECTOR) for sector in shown])
    _frame(axes)
    return figure


def request_words(run: Run, line: int, array: str | None = None, number: int = 0) -> str:
    """`request` in words."""
    accesses, sectors = _one_request(run, line, array, number)
    useful = int(np.unique(accesses[["offset", "size"]])["size"].sum())
    return (
        f"Line {line}: {len(accesses)} lanes ask for {useful} bytes in {len(sectors)} "
        f"{'sector' if len(sectors) == 1 else 'sectors'} of {SECTOR}; "
        f"{useful / len(sectors) / SECTOR:.0%} of the bytes moved are used."
    )


def traffic_bars(times_ideal: Mapping[str, float], width: float = 7.0) -> Figure:
    """How many times the ideal each kernel moved, a bar a kernel, on a logarithmic axis; the line is the ideal, 1."""
    if not times_ideal or min(times_ideal.values()) <= 0:
        raise ValueError(f"times_ideal={dict(times_ideal)!r}: needs a kernel, and values above 0")
    figure = Figure(figsize=(width, 0.36 * len(times_ideal) + 0.8), facecolor=EMPTY, layout="constrained")
    axes = figure.subplots()
    names, values = list(times_ideal), list(times_ideal.values())
    axes.barh(names, values, color=READ, height=0.62)
    for row, value in enumerate(values):
        axes.annotate(f"{value:.2f}", (value, row), (4, 0), textcoords="offset points", va="center", color=INK)
    axes.axvline(1, color=IDEAL, lw=1.5)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.5, 2 * max(values))
    ticks = [2**i for i in range(-1, 2 + int(np.ceil(np.log2(max(1.0, *values)))))]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.invert_yaxis()
    axes.set_xlabel("bytes of K and V moved, in times what there is to read")
    _frame(axes)
    return figure


def traffic_bars_words(times_ideal: Mapping[str, float]) -> str:
    """`traffic_bars` in words."""
    each = ", ".join(f"{name} {value:.2f}" for name, value in times_ideal.items())
    return f"Bytes of K and V moved, in times what there is to read: {each}."


def _one_request(run: Run, line: int, array: str | None, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The accesses of a request, and the sectors it moved in ascending order."""
    made = requests(run)
    at_line = [address for address, place in places(run.library, made["pc"]).items() if place.line == line]
    names = [name.decode() for name in run.arrays["name"]]
    kept = np.isin(made["pc"], at_line) & (made["sectors"] > 0)
    if array is not None:
        kept &= np.array(names)[made["array"]] == array
    found = np.flatnonzero(kept)
    if number >= len(found):
        where = f"line {line}" if array is None else f"line {line} of array {array}"
        raise ValueError(f"number={number}: {len(found)} requests to global memory were made at {where}")
    accesses = visits_of(run, found[number])
    ends = np.concatenate([accesses["offset"], accesses["offset"] + accesses["size"] - 1])
    return accesses, np.unique(ends // SECTOR)


def _draw_piece(axes: Axes, piece: np.void, lanes: list[int], rows: Mapping[int, int]) -> None:
    """The bytes one lane asked for, or several lanes together; a piece may reach into a second sector."""
    first, last = int(piece["offset"]), int(piece["offset"]) + int(piece["size"]) - 1
    colour = LANES[lanes[0] % len(LANES)]
    for sector in {first // SECTOR, last // SECTOR} & rows.keys():
        start, end = max(first - sector * SECTOR, 0), min(last + 1 - sector * SECTOR, SECTOR)
        axes.add_patch(
            Rectangle((start, rows[sector] + 0.1), end - start, 0.8, facecolor=colour, edgecolor=EMPTY, lw=0.6)
        )
        label = str(lanes[0]) if len(lanes) == 1 else f"{len(lanes)} lanes"
        if len(label) < 2 * (end - start):  # room for it
            ink = INK if colour in PALE else EMPTY
            axes.text((start + end) / 2, rows[sector] + 0.52, label, ha="center", va="center", size=6.5, color=ink)


def _grid_of(run: Run, array: str) -> list[int]:
    index = [name.decode() for name in run.arrays["name"]].index(array)
    accesses = run.accesses
    launch = accesses["launch"][(accesses["array"] == index) & (accesses["operation"] == 0)][0]
    return run.launches[launch]["grid"].tolist()


def _frame(axes: Axes) -> None:
    axes.tick_params(length=0, labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(RULE)
