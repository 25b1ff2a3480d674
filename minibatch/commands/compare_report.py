"""What `compare` prints and draws: a table of batchers, or one of memories."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from minibatch.metrics import Summary, kv_use_while_waiting, summarise, too_few
from minibatch.trace import Trace

KERNEL = "MINIBATCH_KERNEL"  # `minibatch.cuda.backends.VARIABLE`, without its torch

# (heading, width, how to print it) of a table's columns
Columns = list[tuple[str, int, Callable[[Trace, Summary], str]]]


def print_report(arguments: argparse.Namespace, traces: list[Trace], same: bool, position_bytes: int) -> None:
    """The table, and in sentences what it cannot say by itself. `position_bytes`: K and V of one token."""
    rows, paged = [summarise(trace) for trace in traces], arguments.memory == "paged"
    pool = _pool(arguments, traces, position_bytes) if paged else f"{arguments.max_num_seqs} slots"
    native = ", native operations" if arguments.native else ""
    print(f"{arguments.model} in {arguments.dtype}{native}, {len(traces[0].requests)} requests, {pool};")
    print("seconds from arrival; tokens are output tokens of finished requests")
    if paged and os.environ.get(KERNEL, "auto") not in ("auto", "torch"):
        print(f"paged attention by the handwritten kernel, {KERNEL}={os.environ[KERNEL]}")
    print()
    columns = MEMORIES if paged else BATCHERS
    print("".join(f"{heading:>{width + 1}}" for heading, width, _ in columns))
    for trace, row in zip(traces, rows):
        print("".join(f"{cell(trace, row):>{width + 1}}" for _, width, cell in columns))
    print()
    print("The texts are identical." if same else "THE TEXTS DIFFER: in float32, that is a defect.")
    for line in _memory_remarks(traces) if paged else _batcher_remarks(arguments, rows):
        print(line)
    if too_few(rows[0].n, 95):
        print(f"With n={rows[0].n}, p95 is simply the slowest request.")


def draw(arguments: argparse.Namespace, traces: list[Trace]) -> list[Path]:
    """All runs on one axis of steps, and on one of seconds; and, of memories, how full they were; and a page that plays
    them. The runs themselves lie beside them, for `python -m minibatch player`. Returns the files that show something.
    """
    from minibatch.plot import player_page, save, slots
    from minibatch.plot.pressure import pressure

    arguments.out.mkdir(parents=True, exist_ok=True)
    named = {f"{trace.scheduler}, {_memory(trace)}" if arguments.memory else trace.scheduler: trace for trace in traces}
    figures = {"steps": slots(named), "seconds": slots(named, axis="seconds")}
    if arguments.memory == "paged":
        figures["memory"] = pressure(named)
    for name, figure in figures.items():
        save(figure, arguments.out / f"compare_{name}.png")
    for name, trace in named.items():
        trace.save(arguments.out / f"compare_{name.replace(', ', '_')}.trace.json")
    page = arguments.out / "compare.html"
    page.write_text(player_page(named), encoding="utf-8")
    return [*(arguments.out / f"compare_{name}.png" for name in figures), page]


def _batcher_remarks(arguments: argparse.Namespace, rows: list[Summary]) -> list[str]:
    by_name, lines = {row.scheduler: row for row in rows}, []
    if {"static", "iteration"} <= by_name.keys():
        static, iteration = by_name["static"], by_name["iteration"]
        lines.append(
            f"Iteration-level scheduling took {iteration.steps} steps where the static batch took {static.steps} "
            f"({static.steps / iteration.steps:.2f}x), and {iteration.dead_slot_steps} dead slot-steps "
            f"against {static.dead_slot_steps}."
        )
    if arguments.rate is None and "dynamic" in by_name:
        lines.append("All requests arrive at once, so the dynamic batcher's window hardly matters; try --rate 2.")
    return lines


def _memory_remarks(traces: list[Trace]) -> list[str]:
    """For each batcher: how many ran at once, and how full the pool was while others waited."""
    lines = ["Mean running, KV use (positions that hold a token, of all) and KV taken are of the steps with a queue."]
    for contiguous, paged in zip(traces[::2], traces[1::2]):
        before, after = (kv_use_while_waiting(trace) for trace in (contiguous, paged))
        lines.append(
            f"{paged.scheduler}: up to {_peak(paged)} requests ran at once in blocks of {paged.block_size}, "
            f"up to {_peak(contiguous)} in regions."
        )
        if before and after:
            lines[-1] += f" While others waited, KV use was {after[0]:.0%} in blocks and {before[0]:.0%} in regions."
        else:
            lines[-1] += " For a part of the runs nobody waited at all; a smaller --max-num-seqs is a smaller pool."
    return lines


def _pool(arguments: argparse.Namespace, traces: list[Trace], position_bytes: int) -> str:
    positions = max(trace.steps[0].memory.capacity for trace in traces)
    size = f"{positions:,} K/V positions ({positions * position_bytes / 1e6:.1f} MB)"
    return f"{size} as {arguments.max_num_seqs} regions or as blocks of {arguments.block_size}"


def _memory(trace: Trace) -> str:
    return "paged" if trace.block_size else "contiguous"


def _peak(trace: Trace) -> int:
    return max(len(step.live) for step in trace.steps)


def _running(trace: Trace) -> str:
    counts = [len(step.live) for step in trace.steps if step.waiting]
    return f"{mean(counts):.1f}" if counts else "-"


def _share(trace: Trace, which: int) -> str:
    use = kv_use_while_waiting(trace)
    return f"{use[which]:.0%}" if use else "-"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


BATCHERS: Columns = [
    ("batcher", 10, lambda trace, row: row.scheduler),
    ("tokens/s", 9, lambda trace, row: f"{row.tokens_per_second:.0f}"),
    ("live slots", 11, lambda trace, row: f"{row.mean_live_slots:.1f}"),
    ("dead slot-steps", 16, lambda trace, row: str(row.dead_slot_steps)),
    ("steps", 6, lambda trace, row: str(row.steps)),
    ("TTFT p50", 9, lambda trace, row: _seconds(row.ttft_p50)),
    ("p95", 6, lambda trace, row: _seconds(row.ttft_p95)),
    ("E2E p50", 8, lambda trace, row: _seconds(row.e2e_p50)),
    ("p95", 6, lambda trace, row: _seconds(row.e2e_p95)),
    ("n", 4, lambda trace, row: str(row.n)),
]
MEMORIES: Columns = [
    ("batcher", 10, lambda trace, row: row.scheduler),
    ("memory", 10, lambda trace, row: _memory(trace)),
    ("tokens/s", 9, lambda trace, row: f"{row.tokens_per_second:.0f}"),
    ("peak running", 12, lambda trace, row: str(_peak(trace))),
    ("mean running", 12, lambda trace, row: _running(trace)),
    ("KV use", 7, lambda trace, row: _share(trace, 0)),
    ("KV taken", 8, lambda trace, row: _share(trace, 1)),
    ("preemptions", 11, lambda trace, row: str(sum(len(step.preempted) for step in trace.steps))),
    ("steps", 6, lambda trace, row: str(row.steps)),
    ("TTFT p50", 9, lambda trace, row: _seconds(row.ttft_p50)),
    ("E2E p95", 8, lambda trace, row: _seconds(row.e2e_p95)),
    ("n", 4, lambda trace, row: str(row.n)),
]
