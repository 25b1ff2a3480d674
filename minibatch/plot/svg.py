"""`slots_svg`: the slot picture at one step, as a string of SVG. The live Player shows one after another.

No matplotlib, so a step costs milliseconds. The ground is opaque white: the text stays readable in a dark notebook.
"""

from minibatch.plot.bars import (
    DEAD,
    DECODE,
    FAILED,
    PREFILL,
    Bar,
    arrivals,
    bars,
    cells,
    last_step,
    preemptions,
    step_ticks,
)
from minibatch.plot.colours import (
    DEAD_GREY,
    EMPTY,
    FAILED_RED,
    FLATLINE,
    INK,
    PALETTE,
    QUIET,
    RULE,
    Traces,
    ink,
    named,
    palette_of,
    tint,
)
from minibatch.plot.pen import Pen
from minibatch.plot.words import step_words
from minibatch.trace import StepRecord, Trace

WIDEST = 900  # pixels, unless `cell` says otherwise
FUTURE = "#F1F3F5"
BESIDE_CURSOR = {PREFILL: "{} prefill", DECODE: "{}", DEAD: "{} dead", FAILED: "{} failed"}


def slots_svg(traces: Traces, upto: int | None = None, cell: float | None = None, row: int = 26) -> str:
    """Slots by steps as far as step `upto` (from 1; None: the last), with a cursor where the run stands.

    `cell` is the width of a step in pixels (None: as wide as keeps the picture within 900) and `row` the height of a
    slot, to which the text is scaled: `row=44` reads well on a projector. The aria-label says the step in words.
    """
    return SlotsSvg(traces, cell, row).at(last_step(traces) if upto is None else upto)


class SlotsSvg:
    """The picture of one or several traces, laid out once and drawn at any step. Lengths in pixels."""

    def __init__(self, traces: Traces, cell: float | None = None, row: int = 26):
        if row < 12 or (cell is not None and cell <= 0):
            raise ValueError(f"row={row!r}, cell={cell!r}: a row is at least 12 pixels high, a cell wider than 0")
        self.traces, self.pairs, self.steps = traces, named(traces), last_step(traces)
        self.colours, self.row, self.font = palette_of(traces), row, max(9, round(0.44 * row))
        self.laid_out = [(name, trace, bars(trace), arrivals(trace)) for name, trace in self.pairs]
        self.preempted = any(preemptions(trace) for _, trace in self.pairs)
        self.most_waiting = max((record.waiting for _, trace in self.pairs for record in trace.steps), default=0)
        pen = Pen(self.font)
        self.left = 12 + max(pen.wide("waiting"), *(pen.wide(f"slot {trace.num_slots - 1}") for _, trace in self.pairs))
        self.right = 10 + pen.wide(max(self.colours, key=len, default="") + " prefill")
        widest = (WIDEST - self.left - self.right) / max(self.steps, 1)
        self.cell = min(2.8 * row, widest) if cell is None else cell
        self.width = max(self.x(self.steps) + self.right, 40 * self.font)

    def x(self, at: float) -> float:
        """Where a place on the step axis lies."""
        return self.left + at * self.cell

    def at(self, upto: int) -> str:
        """The picture at one step, from 1 to the last of the longest trace (0 where nothing ran)."""
        if not min(1, self.steps) <= upto <= self.steps:
            raise ValueError(f"upto={upto!r}: steps run from {min(1, self.steps)} to {self.steps}")
        pen = Pen(self.font)
        pen.text(self.left, self.font, f"step {upto:,} of {self.steps:,}", weight="bold")
        pen.down += 2 * self.font
        for name, trace, its_bars, arriving in self.laid_out:
            record = trace.steps[upto - 1] if 0 < upto <= len(trace.steps) else None
            self._heading(pen, name, trace, record)
            top, ran = pen.down, min(upto, len(trace.steps))
            self._slots(pen, trace, its_bars, ran)
            self._queue(pen, trace, ran, arriving)
            if record:
                self._cursor(pen, record, top)
            pen.down += 0.8 * self.font
        self._ruler(pen)
        self._legend(pen)
        return pen.document(self.width, step_words(self.traces, upto))

    def _heading(self, pen: Pen, name: str, trace: Trace, record: StepRecord | None) -> None:
        now = f"ended after step {len(trace.steps):,}"
        if record:
            now = f"{len(record.live)} of {trace.num_slots} slots live, {len(record.dead)} dead"
        pen.text(self.left, 0.6 * self.font, name, weight="bold")
        pen.text(self.left + 1.1 * pen.wide(name) + self.font, 0.6 * self.font, now, QUIET)
        pen.down += 1.6 * self.font

    def _slots(self, pen: Pen, trace: Trace, its_bars: list[Bar], ran: int) -> None:
        """A row a slot: what has been, then the ground of what is to come."""
        end, height = self.x(len(trace.steps)), trace.num_slots * self.row
        pen.rect(self.x(ran), 0, end - self.x(ran), height, FUTURE)
        for slot in range(trace.num_slots):
            pen.text(self.left - 8, (slot + 0.5) * self.row, f"slot {slot}", QUIET, "end")
            pen.line(self.left, slot * self.row, end, slot * self.row, RULE)
        for bar in its_bars:
            if bar.first <= ran:
                self._bar(pen, bar._replace(right=min(bar.right, ran)))
        for lost in preemptions(trace):
            if lost.step <= ran:
                self._cross(pen, self.x(lost.at), (lost.slot + 0.5) * self.row)
        pen.down += height
        pen.line(self.left, 0, end, 0, RULE)

    def _bar(self, pen: Pen, bar: Bar) -> None:
        colour = self.colours[bar.request_id]
        plain = {PREFILL: tint(colour), DECODE: colour, DEAD: DEAD_GREY, FAILED: EMPTY}[bar.kind]
        fill = pen.hatch(colour) if bar.kind == PREFILL else plain
        left, width, top = self.x(bar.left), (bar.right - bar.left) * self.cell, bar.slot * self.row
        pen.rect(left, top + 1.5, width, self.row - 3, fill, FAILED_RED if bar.kind == FAILED else "")
        if bar.kind == DEAD:
            pen.line(left, top + self.row / 2, left + width, top + self.row / 2, FLATLINE)
        if bar.kind == FAILED:
            pen.line(left, top + 1.5, left + width, top + self.row - 1.5, FAILED_RED)
            pen.line(left, top + self.row - 1.5, left + width, top + 1.5, FAILED_RED)
        words = pen.wide(bar.request_id)
        if words * 1.1 > width:
            return
        if bar.kind != DECODE:  # a patch of plain ground, so that the id stands clear of the lines
            height = 1.2 * self.font
            pen.rect(left + (width - words) / 2 - 1, top + (self.row - height) / 2, words + 2, height, plain)
        pen.text(left + width / 2, top + self.row / 2, bar.request_id, ink(plain), "middle")

    def _cross(self, pen: Pen, x: float, y: float) -> None:
        """Here a request was preempted: dark on a white rim."""
        arm = 0.32 * self.font
        for colour, width in ((EMPTY, 5), (INK, 2.5)):
            pen.line(x - arm, y - arm, x + arm, y + arm, colour, width)
            pen.line(x - arm, y + arm, x + arm, y - arm, colour, width)

    def _queue(self, pen: Pen, trace: Trace, ran: int, arriving: dict[str, float]) -> None:
        """Queue length so far, and under it a triangle for each arrival so far."""
        top, base = 6, 6 + 0.9 * self.row
        pen.text(self.left - 8, (top + base) / 2, "waiting", QUIET, "end")
        outline = [(self.x(0), base)]
        for record in trace.steps[:ran]:
            level = base - 0.9 * self.row * record.waiting / max(self.most_waiting, 1)
            if outline[-1][1] != level:
                outline += [(self.x(record.step - 1), outline[-1][1]), (self.x(record.step - 1), level)]
        pen.area([*outline, (self.x(ran), outline[-1][1]), (self.x(ran), base)], "#AEB6C1", "#4A5563")
        pen.down += base
        marks: dict[float, str] = {}
        for request_id, at in arriving.items():
            place = round(self.x(at))
            if at <= ran:
                marks[place] = INK if place in marks else self.colours[request_id]
        for x, colour in marks.items():
            pen.area([(x, 2), (x + 4, 9), (x - 4, 9)], colour)
        pen.down += 11

    def _cursor(self, pen: Pen, record: StepRecord, top: float) -> None:
        """The line where the run stands, and beside it what each slot and the queue hold in this step."""
        x, bottom = self.x(record.step), pen.down
        pen.line(x, top - bottom - 3, x, 0, INK, 2)
        for slot, (request_id, kind) in cells(record).items():
            middle = top - bottom + (slot + 0.5) * self.row
            pen.text(x + 6, middle, BESIDE_CURSOR[kind].format(request_id))
        pen.text(x + 6, -11 - 0.45 * self.row, str(record.waiting))

    def _ruler(self, pen: Pen) -> None:
        spacing = pen.wide(f"{self.steps:,}") + 1.5 * self.font
        for step in step_ticks(self.steps, int(self.steps * self.cell / spacing)):
            pen.text(self.x(step - 0.5), 0.5 * self.font, f"{step:,}", QUIET, "middle")
        pen.down += 1.8 * self.font

    def _legend(self, pen: Pen) -> None:
        x, middle = self.left, 0.7 * self.font
        for fill, word in [
            (pen.hatch(PALETTE[0]), "prefill"),
            (PALETTE[0], "decode"),
            (DEAD_GREY, "dead"),
            (EMPTY, "empty"),
        ]:
            pen.rect(x, 0.2 * self.font, 2 * self.font, self.font, fill, QUIET if fill == EMPTY else "")
            if fill == DEAD_GREY:
                pen.line(x, middle, x + 2 * self.font, middle, FLATLINE)
            pen.text(x + 2.5 * self.font, middle, word, QUIET)
            x += 4 * self.font + pen.wide(word)
        if self.preempted:
            self._cross(pen, x + 0.5 * self.font, middle)
            pen.text(x + 1.5 * self.font, middle, "preempted", QUIET)
        pen.down += 1.8 * self.font
