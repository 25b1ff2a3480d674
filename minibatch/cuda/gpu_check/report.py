"""What was found, as JSON, as a Markdown page and as a plot."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from minibatch.cuda.gpu_check.correct import Check
from minibatch.cuda.gpu_check.shapes import AIM, AIMS
from minibatch.cuda.gpu_check.timing import Row


@dataclass
class Findings:
    """All of one run. `machine` names card, driver, versions, date and command: a time is worth nothing without."""

    machine: dict[str, str]
    checks: list[Check] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    copy_gb_s: float = 0.0
    sanitizer: dict[str, str] = field(default_factory=dict)
    counted: dict[int, dict[str, int]] | str = "not run"  # by ncu
    predicted: dict[str, dict[str, int]] = field(default_factory=dict)  # by the tracer
    failed: list[str] = field(default_factory=list)  # a sentence for each failure beside those of `checks`
    remarks: list[str] = field(default_factory=list)  # what was left out, a sentence each

    @property
    def correct(self) -> bool:
        wrong = any(check.failed or check.emulated_failed for check in self.checks)
        return bool(self.checks) and not wrong and not self.failed


def write(findings: Findings, folder: Path) -> list[Path]:
    """Write gpu_check.json, gpu_check.md and gpu_check.png. Returns what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {"gpu_check.json": json.dumps(asdict(findings), indent=1) + "\n", "gpu_check.md": markdown(findings)}
    for name, text in named.items():
        (folder / name).write_text(text)
    try:
        figure = plot(findings)
    except ImportError as error:
        print(f"no plot: {error}")
        return [folder / name for name in named]
    figure.savefig(folder / "gpu_check.png", dpi=150)
    return [*(folder / name for name in named), folder / "gpu_check.png"]


def markdown(findings: Findings) -> str:
    """The whole page."""
    parts = ["# The paged-attention kernels on a GPU", _lines(f"{k}: {v}" for k, v in findings.machine.items())]
    parts += ["## Are they right", _checks(findings.checks), _lines(findings.failed)]
    parts += [_lines(f"compute-sanitizer {tool}: {said}" for tool, said in findings.sanitizer.items())]
    if findings.rows:
        parts += ["## How fast are they", f"A copy moves {findings.copy_gb_s:,.0f} GB/s, read and written."]
        parts += [f"{aims(findings.rows)}\n\n{times(findings.rows)}"]
    parts += ["## What the tracer predicted, and what ncu counted", counted(findings.predicted, findings.counted)]
    if findings.remarks:
        parts += ["## Remarks", _lines(findings.remarks)]
    return "\n\n".join(filter(None, parts)) + "\n"


def times(rows: Sequence[Row]) -> str:
    """A row for each shape, a column for each kernel: percent of the copy bandwidth, and microseconds."""
    names = list(dict.fromkeys(row.name for row in rows))
    cells = {(row.batch, row.context, row.name): f"{row.percent:.0f} % ({row.us:,.0f} µs)" for row in rows}
    shapes = sorted({(row.batch, row.context) for row in rows})
    table = [[str(b), f"{c:,}", *(cells.get((b, c, name), "") for name in names)] for b, c in shapes]
    return _table(["batch", "context", *names], table)


def aims(rows: Sequence[Row]) -> str:
    """Whether rung 6 reaches what it should, in a sentence for each shape."""
    reached = {(row.batch, row.context): row.percent for row in rows if row.name == "rung 6"}
    said = []
    for shape in AIMS:
        if shape in reached:
            verdict = "reached" if reached[shape] >= AIM else "missed"
            percent = f"{reached[shape]:.0f} % of the copy bandwidth, the aim of {AIM:.0f} % {verdict}"
            said.append(f"Rung 6 at batch {shape[0]}, context {shape[1]:,}: {percent}.")
    return " ".join(said)


def counted(predicted: Mapping[str, Mapping[str, int]], found: Mapping[int, Mapping[str, int]] | str) -> str:
    """Reads of global memory by each rung: the tracer's count of the emulated run beside ncu's of the real one."""
    said = f"ncu: {found}\n\n" if isinstance(found, str) else ""
    table = []
    for rung, numbers in predicted.items():
        real = {} if isinstance(found, str) else found.get(int(rung), {})
        each = [(numbers[name], real.get(name)) for name in ("requests", "sectors")]
        table.append([f"rung {rung}", *("" if x is None else f"{x:,}" for pair in each for x in pair)])
    head = ["", "requests, traced", "requests, ncu", "sectors, traced", "sectors, ncu"]
    return said + _table(head, table)


def plot(findings: Findings):
    """Percent of the copy bandwidth over the context, a panel a batch, a line a kernel. A matplotlib Figure."""
    from matplotlib.figure import Figure

    batches = sorted({row.batch for row in findings.rows})
    names = list(dict.fromkeys(row.name for row in findings.rows))
    figure = Figure(figsize=(3.2 * max(1, len(batches)), 3.4), layout="constrained")
    panels, lines = figure.subplots(1, max(1, len(batches)), sharey=True, squeeze=False)[0], {}
    for axes, batch in zip(panels, batches):
        for number, name in enumerate(names):
            points = sorted((r.context, r.percent) for r in findings.rows if r.batch == batch and r.name == name)
            if points:
                look = {"marker": "o", "ls": "-"} if name.startswith("rung") else {"marker": "x", "ls": ":"}
                (lines[name],) = axes.plot(*zip(*points), color=f"C{number}", ms=3, lw=1.2, label=name, **look)
        axes.set_xscale("log", base=2)
        axes.set(title=f"batch {batch}", xlabel="context", ylim=(0, None))
    panels[0].set_ylabel("% of copy bandwidth")
    if lines:
        figure.legend(handles=[lines[name] for name in names], loc="outside lower center", ncols=5, fontsize=7)
    figure.suptitle(findings.machine.get("card", ""), fontsize=9)
    return figure


def _checks(checks: Sequence[Check]) -> str:
    head = ["type", "head_dim", "rung", "launches", "wrong", "largest difference from float64", "from the emulator"]
    table = [
        [c.dtype, str(c.head_dim), str(c.rung), str(c.launches), str(c.failed + c.emulated_failed)]
        + [f"{c.worst:.1e}", f"{c.emulated_worst:.1e}"]
        for c in checks
    ]
    return _table(head, table)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _lines(sentences) -> str:
    return "\n".join(f"* {sentence}" for sentence in sentences)
