"""The table of the ladder in minibatch/cuda/README.md is what a trace says."""

import re
from pathlib import Path

import pytest
import torch
from compiled_kernels import needs_compiler

from minibatch import cuda
from minibatch.cuda.library import load
from minibatch.cuda.scene import make_scene
from minibatch.cuda.simulated import Run
from minibatch.cuda.trace import by_line, traffic

FOLDER = Path(cuda.__file__).parent
README = (FOLDER / "README.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d) \[`(\w+)`\].*\| ([\d,]+) \| ([\d.]+) \| (\d+%) \|$", re.MULTILINE)
LADDER = {int(rung): rest for rung, *rest in ROW.findall(README)}


def test_the_table_names_every_rung_of_the_cpu():
    assert list(LADDER) == [1, 2, 3, 4, 5, 6]
    assert all((FOLDER / "kernels" / f"{name}.cuh").exists() for name, *_ in LADDER.values())


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 8 and [link for link in links if not (FOLDER / link).exists()] == []


@needs_compiler
@pytest.mark.parametrize("rung", LADDER)
def test_the_table_is_what_was_traced(rung):
    scene, run = make_scene((100, 37, 64, 129)), Run(trace_limit=1_000_000)
    load("checked", torch.float32, 64).attention(*scene.arguments, rung=rung, parts=2, run=run)
    moved, reads = traffic(run, ["k", "v"]), [use for use in by_line(run) if use.array in ("k", "v")]
    sectors = sum(use.sectors * use.requests for use in reads)
    useful = sum(use.useful * use.sectors * use.requests for use in reads) / sectors
    times = moved.request_bytes / scene.kv_bytes
    assert LADDER[rung][1:] == [f"{moved.requests:,}", f"{times:.2f}", f"{useful:.0%}"]
    assert f"{scene.kv_bytes:,} bytes of K and V" in README


@needs_compiler
def test_half_precision_doubles_what_rung_1_moves():
    scene, run = make_scene((100, 37, 64, 129), dtype=torch.float16), Run(trace_limit=1_000_000)
    load("checked", torch.float16, 64).attention(*scene.arguments, rung=1, run=run)
    assert traffic(run, ["k", "v"]).request_bytes == 16 * scene.kv_bytes and "rung 1 stands at 16" in README
