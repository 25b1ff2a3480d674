"""The cost model against measured steps. What is fitted comes from a file, never from a clock."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest

from minibatch.__main__ import main
from minibatch.bench.step_report import Shape, StepReport, StepRow, format_steps_table, stored_steps
from minibatch.plot import png
from minibatch.plot.calibration import calibration, calibration_alt
from minibatch.simulate.calibration import (
    WAYS,
    calibrated,
    compare,
    errors,
    fit,
    full_speed,
    parts_of,
    reached,
)

DTYPES = ("float32", "bfloat16")
GRID = [Shape(batch, context) for batch in (1, 4, 16, 64) for context in (16, 200, 2000)]
GRID += [Shape(count=count) for count in (16, 128, 1024)] + [Shape(8, 256, start, 100) for start in (0, 500)]
MACHINE = {"cpu": "C", "cores": 2, "threads": 1, "torch": "2", "date": "2026-01-01"}


def made_up(shape, ms=10.0, dtype="float32", linear=0.5, attention=0.25, quiet=4):
    return StepRow(dtype, shape, ms, ms, linear, attention, 4, quiet)


def made_by(way, overhead, bandwidth, flops, dtype="float32"):
    """Rows that follow one way to the letter."""
    rows = [made_up(shape, dtype=dtype) for shape in GRID]
    seconds = overhead + WAYS[way](parts_of(rows), bandwidth, flops)
    return [replace(row, ms=1e3 * float(each)) for row, each in zip(rows, seconds)]


@pytest.mark.parametrize("way", WAYS)
def test_the_fit_finds_the_numbers_that_made_the_rows(way):
    found = fit(made_by(way, 0.03, 0.4, 0.2), WAYS[way])
    assert found == pytest.approx((0.03, 0.4, 0.2), rel=0.02)


def test_half_is_fitted_and_the_other_half_predicted():
    rows = (*made_by("roofline", 0.02, 0.5, 0.3), *made_by("roofline", 0.01, 0.3, 0.05, "bfloat16"))
    found = compare(StepReport("m", MACHINE, "command", rows))
    of_roofline = [row for row in found if row["way"] == "roofline"]
    assert [row["fitted"] for row in of_roofline] == [i % 2 == 0 for _ in DTYPES for i in range(len(GRID))]
    assert max(abs(row["error"]) for row in of_roofline) < 0.02
    assert max(abs(row["error"]) for row in found if row["way"] == "in turn") > 0.1, "another way does not fit them"
    json.dumps(found)  # plain numbers and words


def test_errors_count_the_unseen_half_only():
    rows = [
        {"way": "roofline", "dtype": "float32", "kind": kind, "error": error, "fitted": fitted}
        for kind, error, fitted in (
            ("decode", 0.1, False),
            ("decode", -0.3, False),
            ("decode", 9.0, True),
            ("mixed", 0.5, False),
        )
    ]
    found = {row["kind"]: (row["n"], row["median"], row["worst"]) for row in errors(rows)}
    assert found == {"decode": (2, pytest.approx(0.2), 0.3), "mixed": (1, 0.5, 0.5), "all": (3, 0.3, 0.5)}


def test_the_numbers_fitted_are_those_of_the_roofline():
    """`roofline` in numpy and `Roofline` must be one formula, or the error stated is another's."""
    cost = calibrated()
    rows = [made_up(shape) for shape in GRID]
    by_numpy = cost.overhead + WAYS["roofline"](parts_of(rows), cost.bandwidth_share, cost.flops_share)
    by_class = [cost.computing(shape.tokens, shape.positions, shape.pairs) for shape in GRID]
    assert by_numpy.tolist() == pytest.approx(by_class)


def test_a_shape_counts_what_its_plan_computes(tiny):
    from minibatch.bench.steps import step_plan

    cost = replace(full_speed("float32"), flops_share=1e-3, overhead=0.0)  # slow enough to count every pair
    for shape in (Shape(3, 7), Shape(count=9), Shape(start=4, count=5), Shape(2, 6, 3, 8)):
        plan = step_plan(shape)
        looked_at = [row.start + i + 1 for row in plan.rows for i in range(row.count)]
        assert (shape.tokens, shape.pairs) == (len(looked_at), sum(looked_at))
        assert shape.positions == sum(row.start + row.count for row in plan.rows)
        for each in (cost, full_speed("float32")):
            assert each.seconds(plan) == pytest.approx(each.computing(shape.tokens, shape.positions, shape.pairs))
        places = [place for row in plan.rows for place in row.sequence.region]
        assert len(places) == len(set(places)) == shape.positions, "regions do not overlap"
        assert all(row.yields_token for row in plan.chunks)


def test_every_kind_of_step_is_measured(tiny):
    from minibatch.bench.steps import bench_steps

    shapes = (Shape(2, 8), Shape(count=12), Shape(2, 8, 4, 6))
    report = bench_steps([tiny], shapes, repeats=1, command="c")
    assert (report.model, report.command) == ("tiny", "c") and report.machine["cpu"]
    assert [row.shape for row in report.rows] == list(shapes)
    assert [row.shape.kind for row in report.rows] == ["decode", "prefill", "mixed"]
    for row in report.rows:
        assert row.dtype == "float32" and row.blocks == 1 and 0 < row.ms == row.ms_min
        assert 0 < row.linear_share < 1 and 0 < row.attention_share < 1


def test_a_model_too_small_for_the_grid_is_refused_by_the_command(capsys):
    assert main(["bench", "steps", "--model", "tiny", "--dtype", "float32"]) == 1
    assert "2000 positions, and 'tiny' knows 512" in capsys.readouterr().err


def test_what_cannot_be_measured_is_refused(tiny):
    from minibatch.bench.steps import measure_steps

    with pytest.raises(ValueError, match="5000 positions.*'tiny' knows 512"):
        measure_steps(tiny, [Shape(1, 5000)])
    with pytest.raises(ValueError, match="repeats=0"):
        measure_steps(tiny, [Shape(1, 8)], repeats=0)


@pytest.mark.parametrize(
    "bad", [{}, {"batch": 1}, {"context": 5}, {"context": 5, "count": 1}, {"start": 3}, {"batch": -1}]
)
def test_a_shape_that_is_no_step_is_refused(bad):
    with pytest.raises(ValueError, match="Shape"):
        Shape(**bad)


def test_a_report_survives_json_and_prints():
    report = StepReport("m", MACHINE, "command", (made_up(GRID[0]), made_up(GRID[-1], quiet=0)))
    assert StepReport.from_json(report.to_json()) == report
    assert json.loads(report.to_json())["rows"][0]["shape"] == asdict(GRID[0])
    table = format_steps_table(report)
    assert "C, 1 of 2 cores, torch 2, 2026-01-01" in table and "500 to 600" in table and "10.0*" in table


def test_the_parts_reach_shares_of_the_machine():
    """By hand: 538 MB of weights and 46,080 bytes of K and V a position in half and a quarter of 100 ms."""
    bandwidth = full_speed("float32").deployment.card.bandwidth
    row = made_up(Shape(4, 1000), ms=100.0)
    found = reached(StepReport("m", MACHINE, "c", (row, row, *[replace(row, dtype="bfloat16")] * 2)))[0]
    assert found["weights_of_bandwidth"] == pytest.approx(538e6 / 0.05 / bandwidth, rel=1e-3)
    assert found["stored_of_bandwidth"] == pytest.approx(4000 * 46_080 / 0.025 / bandwidth)
    assert found["rest_ms"] == pytest.approx(25.0)


def test_bad_dtypes_and_empty_reports_are_refused():
    with pytest.raises(ValueError, match="dtype='int8'.*float32, bfloat16"):
        full_speed("int8")
    with pytest.raises(ValueError, match="'float32'.*0 rows"):
        compare(StepReport("m", MACHINE, "c", ()))


# The stored measurement: bounds, so that it can be made again on the same or another machine.


def test_the_stored_steps_name_their_machine_and_cover_the_grid():
    report = stored_steps()
    assert report.model == "smollm2" and report.command.startswith("python -m minibatch bench steps")
    assert report.machine["cpu"] and report.machine["date"]
    for dtype in DTYPES:
        shapes = [row.shape for row in report.rows if row.dtype == dtype]
        decodes = [shape for shape in shapes if shape.kind == "decode"]
        assert {shape.batch for shape in decodes} == {1, 2, 4, 8, 16, 32, 64}
        assert min(shape.context for shape in decodes) == 16 and max(shape.context for shape in decodes) == 2000
        prompts = [shape.count for shape in shapes if shape.kind == "prefill"]
        assert min(prompts) == 16 and max(prompts) == 1024 and len(shapes) > len(decodes) + len(prompts)


@pytest.fixture(scope="module")
def compared():
    return compare()


def test_the_roofline_predicts_what_it_has_not_seen_to_within_a_factor(compared):
    found = {(row["way"], row["dtype"], row["kind"]): row for row in errors(compared)}
    for dtype in DTYPES:
        assert found["roofline", dtype, "all"]["median"] < 0.5
        assert found["roofline", dtype, "all"]["worst"] < 2.0
        assert {kind for _, of, kind in found if of == dtype} == {"decode", "prefill", "mixed", "all"}


def test_reading_and_computing_take_turns(compared):
    """What the docstring of calibration.py says, held against its rows."""
    of = {(row["way"], row["dtype"], row["kind"]): row["median"] for row in errors(compared)}
    assert of["in turn", "float32", "all"] < of["roofline", "float32", "all"]


def test_small_shapes_and_work_between_the_products_are_left_out():
    found = {(row["dtype"], row["batch"], row["context"], row["count"], row["start"]): row for row in reached()}
    measured = {(row.dtype, row.shape): row.ms for row in stored_steps().rows}
    for dtype in DTYPES:
        small, large = found[dtype, 1, 16, 0, 0], found[dtype, 64, 1000, 0, 0]
        assert large["stored_of_bandwidth"] > 10 * small["stored_of_bandwidth"]
        few, many = found[dtype, 0, 0, 16, 0], found[dtype, 0, 0, 1024, 0]
        assert many["products_of_flops"] > 1.3 * few["products_of_flops"]
        assert many["rest_ms"] > 0.1 * measured[dtype, Shape(count=1024)]
        assert all(0 < row[share] < 1.5 for row in (small, large, few, many) for share in row if "_of_" in share)


def test_calibrated_is_a_cost_model_of_this_machine(compared):
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        cost = calibrated(dtype)
        assert cost.deployment.card.name == "laptop-cpu" and cost.deployment.model.bytes_per_weight == size
        row = next(row for row in compared if (row["way"], row["dtype"], row["kind"]) == ("roofline", dtype, "prefill"))
        tokens = row["count"]
        seconds = cost.computing(tokens, tokens, tokens * (tokens + 1) // 2)
        assert seconds * 1e3 == pytest.approx(row["predicted_ms"])


def test_the_picture_shows_every_row_and_says_the_errors(compared):
    figure = calibration(compared, "here and now", ways=["roofline"])
    assert len(figure.axes) == 2
    drawn = sum(len(line.get_xdata()) for axes in figure.axes for line in axes.lines[1:])  # but the identity
    assert drawn == sum(row["way"] == "roofline" for row in compared)
    found = errors(compared)
    whole = next(row for row in found if (row["way"], row["dtype"], row["kind"]) == ("roofline", "float32", "all"))
    said = figure.axes[0].texts[0].get_text().replace("\n", " ")
    assert said.endswith(f"median error {whole['median']:.0%}, worst {whole['worst']:.0%}")
    assert png(figure).startswith(b"\x89PNG")
    words = calibration_alt(found, "here and now")
    assert "here and now" in words and f"median error {whole['median']:.0%}" in words


def test_no_torch_is_needed_to_compare():
    code = "import minibatch.simulate.calibration, minibatch.plot.calibration, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
