"""`block_table`: one sequence's logical blocks, and where in the pool they lie. Introduced in notebook 06."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minibatch.plot.bars import OWNED, SHARED, Bar
from minibatch.plot.colours import EMPTY, QUIET, Traces, ink, named, palette_of, tint
from minibatch.plot.labels import text_width
from minibatch.plot.ownership import Layout, layout, name_of, num_blocks
from minibatch.plot.page import inner_width, own_style
from minibatch.plot.strips import rectangle
from minibatch.trace import Trace

MARGIN, TOP, CELL, ABOVE, BELOW, GAP, BETWEEN = 0.16, 0.3, 0.26, 0.19, 0.17, 0.14, 0.42  # inches
NARROWEST_BLOCK = 1.1  # inches: its name and its slots want so much
FRAME = "#9AA0A6"


def block_table(
    trace: Trace, request_id: str, step: int, width: float = 10.0, coloured_as: Traces | None = None
) -> Figure:
    """A block table while step `step` ran: above, positions in order; below, the pool; lines lead from one to other.

    A position's number stands where its K and V are stored by the end of the step. Under each block of the pool stand
    its slots (block * block_size + offset: what a slot mapping holds). Blocks with several owners are cross-hatched.
    Made for pools of up to about 32 blocks. `width` is in inches; `coloured_as` are the traces of a picture beside it.
    """
    inner_width(width)
    seen = layout(trace, request_id, step)
    with own_style():
        return _Drawing(trace, seen, palette_of(coloured_as or named(trace)[0][1]), width).draw()


class _Drawing:
    """Lengths in inches, y downwards."""

    def __init__(self, trace: Trace, seen: Layout, colours: dict[str, str], width: float):
        self.seen, self.colours, self.size, self.pool = seen, colours, trace.block_size, num_blocks(trace)
        self.colour, self.width = colours[seen.request_id], width
        self.columns = min(max(self.pool, 4), int((width - 2 * MARGIN + GAP) / (NARROWEST_BLOCK + GAP)))
        self.step = (width - 2 * MARGIN + GAP) / self.columns
        self.cell = (self.step - GAP) / self.size
        self.line = ABOVE + CELL + BELOW
        self.upper = -(-len(seen.table) // self.columns)  # lines of logical blocks
        self.ground = TOP + self.upper * self.line + BETWEEN  # where the pool begins
        self.height = self.ground + 0.1 + -(-self.pool // self.columns) * self.line

    def draw(self) -> Figure:
        """Everything, once."""
        figure = Figure(figsize=(self.width, self.height), facecolor=EMPTY)
        axes = figure.add_axes((0, 0, 1, 1), label="table")
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.axis("off")
        title = f"{self.seen.request_id} in step {self.seen.step}: its block table is {self.seen.table}"
        size = min(10.0, 9.5 * 72 * (self.width - 2 * MARGIN) / text_width(title, 10, bold=True))
        axes.text(MARGIN, 0.15, title, size=size, weight="bold", va="center")
        for place in range(len(self.seen.table)):
            self._logical(axes, place)
        for block in range(self.pool):
            self._physical(axes, block)
        return figure

    def _at(self, index: int, top: float) -> tuple[float, float]:
        """Upper left corner of the cells of the index-th block of a list that begins at `top`."""
        return MARGIN + index % self.columns * self.step, top + index // self.columns * self.line + ABOVE

    def _logical(self, axes: Axes, place: int) -> None:
        block = self.seen.table[place]
        (x, y), (to_x, to_y) = self._at(place, TOP), self._at(block, self.ground)
        half = self.cell * self.size / 2
        axes.text(x, y - 0.08, f"logical block {place}", size=7.5, color=QUIET, va="center")
        axes.text(x + 2 * half, y - 0.08, f"→ {block}", size=7.5, weight="bold", va="center", ha="right")
        axes.plot(
            [x + 1.6 * half, to_x + 1.6 * half], [y + CELL, to_y], color=self.colour, lw=1.3, alpha=0.8, zorder=0.5
        )
        self._cells(axes, x, y, place)

    def _physical(self, axes: Axes, block: int) -> None:
        (x, y), long, owners = self._at(block, self.ground), self.cell * self.size, self.seen.owners.get(block, ())
        patch = {"fc": EMPTY, "ec": "none", "boxstyle": "square,pad=0.1"}  # the lines pass behind the words
        axes.text(x, y - 0.08, f"block {block}", size=7.5, color=QUIET, va="center", bbox=patch)
        slots = f"slots {block * self.size} to {(block + 1) * self.size - 1}"
        axes.text(x + long, y + CELL + 0.08, slots, size=6.5, color=QUIET, va="center", ha="right", bbox=patch)
        if self.seen.request_id in owners:
            self._cells(axes, x, y, self.seen.table.index(block))
            return
        ground = tint(self.colours[owners[0]]) if owners else EMPTY
        axes.add_patch(Rectangle((x, y), long, CELL, facecolor=ground, edgecolor=FRAME, linewidth=0.6))
        said = name_of(owners) if owners else "free"
        size = min(7.5, 7 * 72 * long / text_width(said, 7.5))
        axes.text(x + long / 2, y + CELL / 2, said, size=size, color=ink(ground), va="center", ha="center")

    def _cells(self, axes: Axes, x: float, y: float, place: int) -> None:
        """One block of the sequence, position by position: filled ones in its colour and numbered."""
        shared = len(self.seen.owners[self.seen.table[place]]) > 1
        first = place * self.size
        full = min(max(self.seen.filled - first, 0), self.size)
        kind, ground = (SHARED, tint(self.colour)) if shared else (OWNED, self.colour)
        behind = {"fc": ground, "ec": "none", "boxstyle": "square,pad=0.2"} if shared else None
        for offset in range(self.size):
            left = x + offset * self.cell
            bar = Bar(0, "", kind if offset < full else "empty", 1, 1, left, left + self.cell)
            axes.add_patch(rectangle(bar, self.colour, y, CELL))
            axes.add_patch(Rectangle((left, y), self.cell, CELL, facecolor="none", edgecolor=FRAME, linewidth=0.6))
            if offset < full and self.cell >= 0.16:
                style = {"va": "center_baseline", "ha": "center", "bbox": behind, "color": ink(ground)}
                axes.text(left + self.cell / 2, y + CELL / 2, f"{first + offset}", size=7, **style)
