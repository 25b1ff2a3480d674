"""What a measurement found: rows, the machine they belong to, and the roofline beside them. Introduced in notebook 01.

No time leaves this package without its machine and date: a `Report` carries both, and survives JSON unchanged.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files

ITEM_BYTES = {"float32": 4, "bfloat16": 2}
QUIET_ENOUGH = 3  # quiet blocks below which a median is marked


@dataclass(frozen=True, slots=True)
class Row:
    """Decode steps of one batch size: `batch` sequences, each looking back at `context` positions."""

    dtype: str
    batch: int
    context: int
    step_ms: float  # median over the quiet blocks; over all blocks where none was quiet
    step_ms_min: float  # over all blocks
    linear_share: float  # of the step, inside the matrix products with the weights
    attention_share: float  # of the step, inside attention
    weight_bytes: int  # read by one step, whatever the batch
    kv_bytes: int  # read by one step: grows with batch and context
    flops: float  # of one step's products with the weights: 2 a parameter and token
    blocks: int
    quiet: int  # blocks in which other programs left the CPU alone

    @property
    def tokens_per_s(self) -> float:
        """New tokens a second: one a sequence and step."""
        return self.batch / self.step_ms * 1e3

    @property
    def rest_share(self) -> float:
        """Of the step, neither products nor attention: norms, rotation, sampling, Python."""
        return 1 - self.linear_share - self.attention_share


@dataclass(frozen=True, slots=True)
class Report:
    """Rows of one model on one machine. `bandwidth` in bytes/s; `arithmetic` in FLOP/s, for each dtype."""

    model: str
    parameters: int
    machine: dict[str, object]
    command: str
    bandwidth: float
    arithmetic: dict[str, float]
    rows: tuple[Row, ...]

    def of(self, dtype: str) -> list[Row]:
        """The rows of one dtype, by batch size."""
        found = sorted((row for row in self.rows if row.dtype == dtype), key=lambda row: row.batch)
        if not found:
            raise ValueError(f"dtype={dtype!r}: this report has {', '.join(sorted({r.dtype for r in self.rows}))}")
        return found

    def ridge(self, dtype: str) -> float:
        """FLOP per byte above which arithmetic, not memory, sets the pace."""
        return self.arithmetic[dtype] / self.bandwidth

    def ceiling(self, dtype: str, batch: float, kv: bool = True) -> float:
        """Tokens/s that the roofline (Williams et al., CACM 2009) allows at a batch size, at the rows' context.

        A step takes at least its bytes over the bandwidth, and at least its FLOPs over the arithmetic. `kv` counts
        the K and V that attention reads; without, only the weights.
        """
        row = self.of(dtype)[0]
        read = row.weight_bytes + kv * batch * row.kv_bytes / row.batch
        return batch / max(read / self.bandwidth, batch * row.flops / row.batch / self.arithmetic[dtype])

    def bandwidth_share(self, row: Row) -> float:
        """Weights read a second, over the measured bandwidth. Above 1 the weights come, in part, out of a cache."""
        return row.weight_bytes / (row.step_ms / 1e3) / self.bandwidth

    @property
    def where_and_when(self) -> str:
        """The machine and the date, for a caption."""
        return where_and_when(self.machine)

    def to_json(self) -> str:
        """As JSON text, a row a line."""
        return to_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """The report that `to_json` wrote."""
        data = json.loads(text)
        return cls(**data | {"rows": tuple(Row(**row) for row in data["rows"])})


def where_and_when(machine: dict[str, object]) -> str:
    """A machine and a date, as `bench.machine.machine` found them, for a caption."""
    m = machine
    return f"{m['cpu']}, {m['threads']} of {m['cores']} cores, torch {m['torch']}, {m['date']}"


def to_json(report: dict[str, object]) -> str:
    """A report as JSON text, each of its "rows" on a line of its own."""
    rows = ",\n  ".join(json.dumps(row) for row in report.pop("rows"))
    return json.dumps(report, indent=1)[:-2] + f',\n "rows": [\n  {rows}\n ]\n}}'


def stored_report() -> Report:
    """The measurement of SmolLM2 in the committed notebook, made by `python -m minibatch bench model --json`."""
    return Report.from_json((files("minibatch") / "data" / "measured_model.json").read_text(encoding="utf-8"))


def format_table(report: Report) -> str:
    """The report as text. A star marks a median of fewer than three quiet blocks: read it as an upper bound."""
    lines = [f"{report.model}, {report.parameters / 1e6:.1f} M parameters; {report.where_and_when}"]
    lines.append(f"read bandwidth {report.bandwidth / 1e9:.1f} GB/s")
    for dtype in dict.fromkeys(row.dtype for row in report.rows):
        rows = report.of(dtype)
        gflops, ridge = report.arithmetic[dtype] / 1e9, report.ridge(dtype)
        lines += [
            "",
            f"{dtype}: weights {rows[0].weight_bytes / 1e6:.0f} MB, {gflops:.0f} GFLOP/s, {ridge:.0f} FLOP/byte",
        ]
        lines += aligned([_HEADER] + [_cells(report, row) for row in rows])
    if any(row.quiet < QUIET_ENOUGH for row in report.rows):
        lines += ["", "* other programs used the CPU nearly all the time: measure again on a quiet machine"]
    return "\n".join(lines)


_HEADER = ("batch", "step ms", "best", "tokens/s", "of bandwidth", "of roofline", "products", "attention", "rest")


def _cells(report: Report, row: Row) -> tuple[str, ...]:
    star = "*" if row.quiet < QUIET_ENOUGH else ""
    shares = (report.bandwidth_share(row), row.tokens_per_s / report.ceiling(row.dtype, row.batch))
    shares += (row.linear_share, row.attention_share, row.rest_share)
    times = (f"{row.step_ms:.2f}{star}", f"{row.step_ms_min:.2f}", f"{row.tokens_per_s:.0f}")
    return (str(row.batch), *times, *(f"{share:.0%}" for share in shares))


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines of text, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*table)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in table]
