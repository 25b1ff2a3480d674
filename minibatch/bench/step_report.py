"""Steps of a real model that were timed, shape by shape: what the cost model is held against. Used in notebook 09.

Needs no torch: `steps.py` measures, `simulate/calibration.py` compares.
"""

import json
from dataclasses import asdict, dataclass
from importlib.resources import files

from minibatch.bench.report import QUIET_ENOUGH, aligned, to_json, where_and_when


@dataclass(frozen=True, slots=True)
class Shape:
    """A step: `batch` decodes that look at `context` positions each, and a prompt's tokens [start, start + count).

    Without decodes it is a prefill step, without a prompt a decode step, else a mixed one.
    """

    batch: int = 0
    context: int = 0
    start: int = 0
    count: int = 0

    def __post_init__(self):
        if min(self.batch, self.context, self.start, self.count) < 0:
            raise ValueError(f"{self}: no number may be below 0")
        if not self.batch and not self.count or bool(self.batch) != bool(self.context):
            raise ValueError(f"{self}: give decodes with a context of at least 1, or a prompt, or both")

    @property
    def kind(self) -> str:
        """ "decode", "prefill" or "mixed"."""
        return "mixed" if self.batch and self.count else "decode" if self.batch else "prefill"

    @property
    def tokens(self) -> int:
        """Computed in the step."""
        return self.batch + self.count

    @property
    def positions(self) -> int:
        """Whose K and V are read: the decodes' contexts, and the prompt up to its last token."""
        return self.batch * self.context + (self.start + self.count if self.count else 0)

    @property
    def pairs(self) -> int:
        """A token and one that it looks at, itself included."""
        return self.batch * self.context + self.count * self.start + self.count * (self.count + 1) // 2


@dataclass(frozen=True, slots=True)
class StepRow:
    """What steps of one shape took. Shares and quiet blocks as in `report.Row`."""

    dtype: str
    shape: Shape
    ms: float  # median over the quiet blocks; over all blocks where none was quiet
    ms_min: float  # over all blocks
    linear_share: float
    attention_share: float
    blocks: int
    quiet: int


@dataclass(frozen=True, slots=True)
class StepReport:
    """Rows of one model on one machine, as they were measured."""

    model: str
    machine: dict[str, object]
    command: str
    rows: tuple[StepRow, ...]

    @property
    def where_and_when(self) -> str:
        """The machine and the date, for a caption."""
        return where_and_when(self.machine)

    def to_json(self) -> str:
        """As JSON text, a row a line."""
        return to_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "StepReport":
        """The report that `to_json` wrote."""
        data = json.loads(text)
        rows = tuple(StepRow(**row | {"shape": Shape(**row["shape"])}) for row in data["rows"])
        return cls(**data | {"rows": rows})


def stored_steps() -> StepReport:
    """The measurement of SmolLM2 kept with the package, made by `python -m minibatch bench steps --json`."""
    return StepReport.from_json((files("minibatch") / "data" / "measured_steps.json").read_text(encoding="utf-8"))


def format_steps_table(report: StepReport) -> str:
    """The report as text. A star marks a median of fewer than three quiet blocks: read it as an upper bound."""
    head = ("dtype", "kind", "batch", "context", "prompt tokens", "step ms", "best", "products", "attention")
    return "\n".join([f"{report.model}; {report.where_and_when}", *aligned([head, *map(_cells, report.rows)])])


def _cells(row: StepRow) -> tuple[str, ...]:
    shape, star = row.shape, "*" if row.quiet < QUIET_ENOUGH else ""
    prompt = f"{shape.start} to {shape.start + shape.count}" if shape.count else "-"
    decodes = (str(shape.batch), str(shape.context)) if shape.batch else ("-", "-")
    times = (f"{row.ms:.1f}{star}", f"{row.ms_min:.1f}", f"{row.linear_share:.0%}", f"{row.attention_share:.0%}")
    return (row.dtype, shape.kind, *decodes, prompt, *times)
