"""The measuring itself: what is counted is exact, what is timed is only positive. No test looks at a clock's value."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from minibatch.bench import Report, Row, format_table, stored_report
from minibatch.bench.scheduler import bench_scheduler, format_scheduler_table
from minibatch.plot import png
from minibatch.plot.bench import parts_alt, step_parts, throughput, throughput_alt

BATCHES = (1, 3, 8)
CONTEXT = 16


@pytest.fixture(scope="module")
def rows(tiny):
    from minibatch.bench.model import measure_model

    return measure_model(tiny, BATCHES, CONTEXT, repeats=2)


def made_up(batch: int, ms: float, dtype: str = "float32", quiet: int = 5) -> Row:
    """A row of a model of 1,000 parameters whose sequence reads 500 bytes of K and V."""
    return Row(dtype, batch, 8, ms, ms, 0.5, 0.2, 4000, 500 * batch, 2000.0 * batch, blocks=5, quiet=quiet)


MACHINE = {"cpu": "C", "cores": 2, "threads": 1, "torch": "2", "date": "2026-01-01"}
REPORT = Report(
    "m", 1000, MACHINE, "command", 1e6, {"float32": 1e7}, (made_up(8, 10.0), made_up(1, 8.0), made_up(64, 20.0))
)


def test_a_row_for_each_batch_size(rows):
    assert [row.batch for row in rows] == list(BATCHES)
    for row in rows:
        assert (row.dtype, row.context, row.blocks) == ("float32", CONTEXT, 2)
        assert 0 < row.step_ms_min <= row.step_ms
        assert 0 < row.linear_share < 1 and 0 < row.attention_share < 1 and 0 < row.rest_share < 1
        assert 0 <= row.quiet <= row.blocks


def test_bytes_and_operations_are_those_of_the_model(rows, tiny):
    weights = [tiny.llama.head, *(each for layer in tiny.llama.layers for each in products(layer))]
    norms = (2 * tiny.config.num_layers + 1) * tiny.config.hidden_size
    count = sum(out * into for out, into in (product.shape for product in weights)) + norms
    for row in rows:
        assert row.weight_bytes == 4 * count
        assert row.flops == 2 * count * row.batch
        stored = tiny.config.num_layers * 2 * tiny.config.num_kv_heads * tiny.config.head_dim
        assert row.kv_bytes == row.batch * CONTEXT * stored * 4


def products(layer) -> list:
    from minibatch.model.linear import Linear

    return [value for value in vars(layer).values() if isinstance(value, Linear)]


def test_an_embedding_of_its_own_is_not_read(tiny):
    from minibatch.bench.model import parameters, weights_read

    untied = replace(tiny.config, tie_word_embeddings=False)
    assert weights_read(tiny.config) == parameters(tiny.config) == weights_read(untied)
    assert parameters(untied) - weights_read(untied) == untied.vocab_size * untied.hidden_size


def test_the_step_is_one_that_the_engine_would_run(tiny):
    """`decode_plan` states by hand what prefill and scheduler lead to: the executor must compute the same."""
    import torch

    from minibatch.bench.model import decode_plan
    from minibatch.model import TorchExecutor

    plan = decode_plan(3, CONTEXT)
    assert [(c.start, c.count, c.yields_token) for c in plan.chunks] == [(CONTEXT - 1, 1, True)] * 3
    regions = [c.sequence.region for c in plan.chunks]
    assert all(len(region) >= CONTEXT for region in regions)
    assert len({place for region in regions for place in region}) == sum(map(len, regions))
    executor = TorchExecutor(tiny.llama, 3 * CONTEXT, CONTEXT)
    tokens = executor.execute(plan).tokens
    assert len(tokens) == 3 and None not in tokens
    written = executor.cache.k[0].flatten(1).any(dim=1).nonzero().flatten()
    assert torch.equal(written, torch.tensor([region.start + CONTEXT - 1 for region in regions]))


def test_the_stopwatch_sees_every_product_and_leaves_no_trace(tiny):
    from minibatch.bench.model import decode_plan, stopwatch
    from minibatch.model import TorchExecutor
    from minibatch.model.linear import Linear

    executor, before = TorchExecutor(tiny.llama, CONTEXT, CONTEXT), Linear.__call__
    with pytest.raises(KeyError), stopwatch(executor) as spent:
        executor.execute(decode_plan(1, CONTEXT))
        assert spent["linear"] > 0 and spent["attention"] > 0
        raise KeyError
    assert Linear.__call__ is before and "forward" not in vars(tiny.llama)


@pytest.mark.parametrize("bad", [{"batches": (0, 1)}, {"context": 0}, {"repeats": 0}])
def test_bad_sizes_are_refused(tiny, bad):
    from minibatch.bench.model import measure_model

    with pytest.raises(ValueError, match=next(iter(bad))):
        measure_model(tiny, **{"batches": (1,), "context": 8, "repeats": 1} | bad)


def test_the_machine_reads_and_multiplies():
    from minibatch.bench.machine import busy_seconds, machine, measure_bandwidth, measure_flops

    assert measure_bandwidth(1 << 20) > 0
    assert measure_flops("float32", size=64) > 0 and measure_flops("bfloat16", size=64) > 0
    assert busy_seconds() >= 0
    found = machine()
    assert found["cpu"] and found["cores"] == os.cpu_count() and found["threads"] >= 1
    assert {"torch", "date", "system", "vector", "python"} <= found.keys()


def test_the_roof_is_the_slower_of_reading_and_computing():
    # A sequence reads 500 bytes and the batch 4,000, at 1e6 bytes/s; it computes 2,000 FLOPs at 1e7 FLOP/s.
    assert REPORT.ceiling("float32", 8) == pytest.approx(8 / (8000 / 1e6))
    assert REPORT.ceiling("float32", 8, kv=False) == pytest.approx(8 / (4000 / 1e6))
    assert REPORT.ceiling("float32", 64, kv=False) == pytest.approx(1e7 / 2000)
    assert REPORT.ridge("float32") == 10
    assert REPORT.bandwidth_share(REPORT.of("float32")[0]) == pytest.approx(4000 / 8e-3 / 1e6)


def test_a_report_survives_json():
    assert Report.from_json(REPORT.to_json()) == REPORT
    assert json.loads(REPORT.to_json())["rows"][0]["batch"] == 8


def test_rows_of_one_dtype_by_batch_size():
    assert [row.batch for row in REPORT.of("float32")] == [1, 8, 64]
    with pytest.raises(ValueError, match="'int8'.*float32"):
        REPORT.of("int8")


def test_the_table_says_where_when_and_how_quiet():
    table = format_table(REPORT)
    assert "C, 1 of 2 cores, torch 2, 2026-01-01" in table and "*" not in table
    first = next(line for line in table.splitlines() if line.split()[:1] == ["1"]).split()
    assert first == ["1", "8.00", "8.00", "125", "50%", "56%", "50%", "20%", "30%"]
    noisy = replace(REPORT, rows=(made_up(1, 8.0, quiet=2),))
    assert "8.00*" in format_table(noisy) and "quiet machine" in format_table(noisy)


def test_noisy_blocks_are_left_out_of_the_median(tiny):
    from minibatch.bench.model import Block, _row

    blocks = [Block(3.0, 0.9, 0.05, False), Block(1.0, 0.5, 0.2, True), Block(2.0, 0.6, 0.2, True)]
    row = _row(tiny.config, "float32", 1, 8, blocks)
    assert (row.step_ms, row.step_ms_min, row.quiet, row.blocks) == (1500.0, 1000.0, 2, 3)
    assert row.linear_share == pytest.approx(0.55)
    assert _row(tiny.config, "float32", 1, 8, blocks[:1]).step_ms == 3000.0


def test_the_stored_report_names_its_machine():
    report = stored_report()
    assert report.model == "smollm2" and report.command.startswith("python -m minibatch bench model")
    assert report.machine["cpu"] and report.machine["date"]
    for dtype in ("float32", "bfloat16"):
        assert [row.batch for row in report.of(dtype)] == [1, 2, 4, 8, 16, 32, 64]


def test_pictures_hold_every_point_and_repeat():
    for report in (REPORT, stored_report()):
        figure = throughput(report)
        low, high = figure.axes[0].get_ylim()
        assert all(low < row.tokens_per_s < high for row in report.rows)
        assert all(low < report.ceiling(row.dtype, row.batch) < high for row in report.rows)
        assert png(throughput(report)) == png(figure)
        for axes, dtype in zip(step_parts(report).axes, dict.fromkeys(row.dtype for row in report.rows)):
            assert axes.get_ylim()[1] > max(row.step_ms for row in report.of(dtype))
            tops = max(patch.get_y() + patch.get_height() for patch in axes.patches)
            assert tops == pytest.approx(max(row.step_ms for row in report.of(dtype)))


def test_alt_text_carries_the_numbers():
    assert "125 at batch 1" in throughput_alt(REPORT) and "2026-01-01" in throughput_alt(REPORT)
    assert "batch 64: 20.0 ms, 50% products, 20% attention, 30% rest" in parts_alt(REPORT)


def test_reports_and_pictures_need_no_torch():
    code = "import minibatch.bench, minibatch.plot.bench, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_prints_a_report():
    command = [sys.executable, "-m", "minibatch", "bench", "model", "--model", "tiny", "--dtype", "float32"]
    command += ["--batches", "1", "2", "--repeats", "1", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    report = Report.from_json(done.stdout)
    assert [row.batch for row in report.of("float32")] == [1, 2] and report.bandwidth > 0
    assert "tiny float32" in done.stderr, "progress goes to stderr"


def test_the_scheduler_bench_has_a_row_for_every_pool_that_fits():
    rows = list(bench_scheduler(running=(2, 400), blocks=(6, 1200)))
    assert [(row.running, row.blocks, row.prefix_cache) for row in rows] == [
        (2, 6, False),
        (2, 6, True),
        (2, 1200, False),
        (2, 1200, True),
        (400, 1200, False),
        (400, 1200, True),
    ]
    for row in rows:
        assert row.us_per_step == pytest.approx(row.us_schedule + row.us_update, abs=0.11) and row.us_update > 0
    assert len(format_scheduler_table(rows).splitlines()) == 2 + len(rows)


@pytest.mark.parametrize("wrong", [dict(running=(0,)), dict(blocks=(-1,))])
def test_the_scheduler_bench_refuses_no_sequences_and_no_blocks(wrong):
    with pytest.raises(ValueError, match="at least 1"):
        list(bench_scheduler(**wrong))


def test_the_scheduler_command_prints_rows():
    command = [sys.executable, "-m", "minibatch", "bench", "scheduler", "--running", "16", "--blocks", "1000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["prefix_cache"] for row in rows] == [False, True]
    assert all(row.keys() >= {"running", "blocks", "us_per_step"} for row in rows)


def peer_run(engine: str, seconds: float, foreign: float, same: int = 24) -> dict:
    run = {"engine": engine, "dtype": "float32", "slots": 8, "seconds": seconds, "foreign": foreign, "same": same}
    return run | {"tokens": 1000, "requests": 24, "versions": {"x": "1"}}


def test_peers_are_compared_over_quiet_runs(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import peers

    runs = [peer_run("llama.cpp", s, f) for s, f in ((5.0, 0.0), (9.0, 0.5), (4.0, 0.1))]
    runs += [peer_run(peers.OURS, s, 0.9, same) for s, same in ((1.0, 24), (3.0, 23), (2.0, 24))]
    ours, llama = peers.summary(runs)
    assert (ours["engine"], ours["seconds"], ours["ratio"], ours["same"]) == (peers.OURS, 2.0, 1.0, 23)
    assert (llama["seconds"], llama["quiet"], llama["runs"]) == (4.5, 2, 3)
    assert llama["ratio"] == pytest.approx(2.0 / 4.5)
    table = peers.markdown([ours, llama]).splitlines()
    assert "2.00 *" in table[2] and "| 4.50 |" in table[3] and "0.44" in table[3]
