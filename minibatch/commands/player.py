"""Make a page that plays saved runs: one HTML file for a projector or an article, without a kernel or network."""

import argparse
from collections import Counter
from pathlib import Path

from minibatch.plot import player_page
from minibatch.plot.bars import AXES
from minibatch.trace import Trace
from minibatch.trace_file import load_trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `player`."""
    parser.add_argument(
        "traces",
        nargs="+",
        type=Path,
        metavar="TRACE.json",
        help="written by trace.save(path), or by `compare` into figures/out; several are played on one axis",
    )
    parser.add_argument("out", type=Path, metavar="OUT.html", help="the page to write (OUT.html#12 opens on step 12)")
    parser.add_argument("--axis", choices=AXES, default="steps", help="what a cell counts (default steps)")
    parser.add_argument("--title", help="above the pictures (default: the names of the runs)")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="of the runs (default: their batchers, else files)")


def run(arguments: argparse.Namespace) -> int:
    """Read, draw, write."""
    out, files = arguments.out, arguments.traces
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{out}: the last name is the page to write and ends in .html")
    traces = [load_trace(path) for path in files]
    page = player_page(_named(files, traces, arguments.names), arguments.title, arguments.axis)
    out.write_text(page, encoding="utf-8")
    print(f"{out} ({len(page.encode()) / 1e3:.0f} kB): open it in a browser")
    return 0


def _named(files: list[Path], traces: list[Trace], names: list[str] | None) -> dict[str, Trace]:
    """By the names given, else the batchers' if they differ, else the files'."""
    if names is None:
        names = [trace.scheduler for trace in traces]
        if len(set(names)) < len(names):
            names = [path.name.removesuffix(".json").removesuffix(".trace") for path in files]
    if len(names) != len(files):
        raise ValueError(f"--names: {len(names)} for {len(files)} traces; give one each")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"two runs are called {twice[0]!r}: give each a name of its own with --names")
    return dict(zip(names, traces))
