"""Many simulations side by side: the same rows and bytes from every executor, again from a file, and in a table."""

import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import pytest

from minibatch.simulate import rows as rows_module
from minibatch.simulate import sweep as sweep_module
from minibatch.simulate.journal import Journal
from minibatch.simulate.rows import COLUMNS, measure, meets, strain, to_frame, write_csv, write_json
from minibatch.simulate.scenario import Scenario
from minibatch.simulate.slo import SLO
from minibatch.simulate.streaming import Sample, StreamingTrace
from minibatch.simulate.sweep import drive, run_all, sweep

SYSTEMS, RATES, TARGETS = ["triton", "vllm-v1"], [1.0, 8.0], "ttft_p95=2,itl_p99=0.5"
BASE = Scenario(trace="azure-code", requests=12)


@pytest.fixture
def calls(monkeypatch):
    """The scenarios that are really simulated; those at 66 requests/s fail."""
    seen = []

    def counting(scenario, window=None, original=rows_module.simulate):
        seen.append(scenario)
        if scenario.rate == 66.0:
            raise RuntimeError("the card is on fire")
        return original(scenario, window)

    monkeypatch.setattr(rows_module, "simulate", counting)
    return seen


def quiet(scenarios_or_systems, *arguments, **options):
    """A sweep in a thread, without a bar."""
    with ThreadPoolExecutor(2) as pool:
        return sweep(scenarios_or_systems, *arguments, executor=pool, progress=False, **options)


def test_rows_are_tidy_and_in_the_order_in_which_they_were_asked_for():
    rows = quiet(SYSTEMS, RATES, TARGETS, BASE)
    assert [(row["system"], row["rate"]) for row in rows] == [(name, rate) for name in SYSTEMS for rate in RATES]
    assert all(tuple(row) == COLUMNS for row in rows)
    assert all(value is None or type(value) in (str, int, float) for row in rows for value in row.values())
    assert {row["slo"] for row in rows} == {TARGETS} and {row["n"] for row in rows} == {12}
    by = {(row["system"], row["rate"]): row for row in rows}
    assert by["triton", 8.0]["ttft_p95"] > by["vllm-v1", 8.0]["ttft_p95"] > by["vllm-v1", 1.0]["ttft_p95"]
    assert meets(by["vllm-v1", 1.0]) and not meets(by["triton", 8.0])
    assert "ttft_p95 is" in by["triton", 8.0]["missed"]


def bytes_of(rows, folder):
    """Both files of a sweep."""
    write_csv(rows, folder / "rows.csv")
    write_json(rows, folder / "rows.json")
    return (folder / "rows.csv").read_bytes() + (folder / "rows.json").read_bytes()


def test_processes_write_the_same_bytes_as_threads(tmp_path):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        by_processes = sweep(SYSTEMS, RATES, TARGETS, BASE, pool, progress=False)
    assert bytes_of(by_processes, tmp_path) == bytes_of(quiet(SYSTEMS, RATES, TARGETS, BASE), tmp_path)


def test_a_cluster_writes_the_same_bytes(tmp_path):
    distributed = pytest.importorskip("distributed", reason="dask.distributed is the optional extra `cluster`")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        rows = sweep(SYSTEMS, RATES, TARGETS, BASE, client.get_executor(), progress=False)
    assert bytes_of(rows, tmp_path) == bytes_of(quiet(SYSTEMS, RATES, TARGETS, BASE), tmp_path)


class Backwards:
    """An executor whose futures are its own, and done in the wrong order: only `submit` and `result` are its."""

    class Later:
        def __init__(self, call):
            self.result = call

        def cancel(self):
            raise AssertionError("nothing was to be cancelled")

    def submit(self, call, *arguments):
        return self.Later(lambda: call(*arguments))


def test_an_executor_needs_no_more_than_submit_and_result(tmp_path):
    rows = sweep(SYSTEMS, RATES, TARGETS, BASE, Backwards(), progress=False)
    assert bytes_of(rows, tmp_path) == bytes_of(quiet(SYSTEMS, RATES, TARGETS, BASE), tmp_path)


def test_a_worker_does_without_torch():
    program = "import minibatch.simulate.sweep, minibatch.simulate.limit, sys; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_rows_in_the_file_are_not_run_again(tmp_path, calls):
    file = tmp_path / "rows.jsonl"
    first = quiet(SYSTEMS, [1.0], TARGETS, BASE, resume=file)
    again = quiet(SYSTEMS, RATES, TARGETS, BASE, resume=file)
    assert [call.rate for call in calls] == [1.0, 1.0, 8.0, 8.0]
    assert [row for row in again if row["rate"] == 1.0] == first
    quiet(SYSTEMS, RATES, "ttft_p95=1", BASE, resume=file)
    assert len(calls) == 8, "other targets are another row"
    quiet(["vllm-v1"], [1.0], TARGETS, replace(BASE, knobs=(("token_budget", 512),)), resume=file)
    assert len(calls) == 9, "other knobs are another row"


def test_a_line_that_was_cut_off_is_run_again(tmp_path, calls):
    file = tmp_path / "rows.jsonl"
    whole = quiet(SYSTEMS, RATES, TARGETS, BASE, resume=file)
    text = file.read_bytes()
    file.write_bytes(text[:-40])
    assert quiet(SYSTEMS, RATES, TARGETS, BASE, resume=file) == whole
    assert len(calls) == 5 and sorted(file.read_bytes().splitlines()) == sorted(text.splitlines())


@pytest.mark.parametrize("line", ["what is this", "[1, 2]", '{"system": "vllm-v1"}'])
def test_another_file_is_refused_with_its_line(tmp_path, line):
    file = tmp_path / "rows.jsonl"
    Journal(file).add(measure(BASE, SLO.parse(TARGETS)))
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"rows.jsonl, line 2: .* choose another file"):
        Journal(file)


def test_a_simulation_that_fails_is_a_row_and_the_others_go_on(tmp_path, calls):
    with pytest.warns(UserWarning, match="1 of 2 simulations failed; the first, vllm-v1 at 66.0 requests/s: Runtime"):
        rows = quiet(["vllm-v1"], [66.0, 1.0], TARGETS, BASE, resume=tmp_path / "rows.jsonl")
    assert rows[0]["error"] == "RuntimeError: the card is on fire" and rows[0]["n"] is None and not meets(rows[0])
    assert rows[1]["n"] == 12 and not rows[1]["error"]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1, "it is tried again the next time"


def test_a_broken_executor_names_the_scenario_and_cancels_the_rest(monkeypatch):
    class Dies(ThreadPoolExecutor):
        def submit(self, call, scenario, slo):
            futures.append(super().submit(self.die if scenario.rate == 1.0 else call, scenario, slo))
            return futures[-1]

        def die(self, scenario, slo):
            raise OSError("a worker was killed")

    futures = []
    with pytest.raises(OSError, match="killed") as caught, Dies(1) as pool:
        sweep(["vllm-v1"], [1.0, 2.0, 4.0, 8.0], TARGETS, BASE, pool, progress=False)
    assert "while simulating Scenario(system='vllm-v1'" in caught.value.__notes__[0]
    assert any(future.cancelled() for future in futures[1:])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"system": "vlm-v1"}, "did you mean 'vllm-v1'"),
        ({"card": "A100"}, "card='A100': there is"),
        ({"card": "L4", "model": "OPT-13B"}, "card='L4': the weights take 25.7 GB"),
        ({"trace": "azure"}, "trace='azure': there is azure-conv"),
        ({"knobs": (("tokens", 5),)}, "'tokens' is no knob of 'vllm-v1'"),
        ({"knobs": (("max_num_seqs", 0),)}, "max_num_seqs=0: must be at least 1"),
        ({"rate": -1.0}, "rate=-1.0"),
        ({"requests": 0}, "requests=0"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(changes, message, calls):
    with pytest.raises(ValueError, match=message):
        run_all([BASE, replace(BASE, **changes)], TARGETS, ThreadPoolExecutor(1), progress=False)
    assert not calls


def test_nothing_to_do_starts_no_process(monkeypatch):
    monkeypatch.setattr(sweep_module.ProcessPoolExecutor, "submit", None)
    assert sweep([], [1.0], TARGETS, progress=False) == [] == drive([], TARGETS, progress=False)


def traced(waiting, preemptions=0, recomputed=0):
    """A run of 90 requests in 90 s, of which a sample a second tells how many waited."""
    trace = StreamingTrace("made", 8, 16)
    trace.first_arrival, trace.steps, trace.computed_tokens = 0.0, 1, 900 + recomputed
    trace.preemptions = preemptions
    for name, values in trace.columns.items():
        values.extend([float(i) if name == "arrival" else 5.0 for i in range(91)])
    trace.computed_tokens = 91 * 4 + recomputed  # 5 + 5 - 1 - 5 (found stored) each
    trace.samples = [Sample(float(t), waiting(t), 4, 0.5, 4) for t in range(120)]
    return trace


@pytest.mark.parametrize(
    "waiting, grows",
    [
        (lambda t: t // 10, True),
        (lambda t: 0, False),
        (lambda t: 9, False),  # long, but it does not grow
        (lambda t: max(t - 90, 0), False),  # after the last arrival
        (lambda t: 0 if t % 7 == 0 else t, False),  # it empties again and again
        (lambda t: 8 if 30 <= t < 60 else 3, False),  # a burst that is worked off
    ],
)
def test_a_queue_that_grows_is_a_sign_of_strain(waiting, grows):
    assert bool(strain(traced(waiting))) is grows


def test_a_few_samples_tell_nothing_of_a_queue():
    trace = traced(lambda t: t // 10)
    assert strain(trace)
    trace.samples = trace.samples[::2]
    assert not strain(trace)


def test_computing_a_tenth_again_is_a_sign_of_strain():
    assert strain(traced(lambda t: 0, preemptions=3, recomputed=30)) == []
    assert strain(traced(lambda t: 0, 3, 91)) == ["20% of the tokens are computed again after 3 preemptions"]


def test_a_data_frame_where_pandas_is_installed(monkeypatch):
    rows = [{"system": "a", "n": 1}, {"system": "b", "n": 2}]
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="pip install pandas"):
            to_frame(rows)
    else:
        assert list(to_frame(rows)["n"]) == [1, 2]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        to_frame(rows)


def test_json_says_what_csv_says(tmp_path):
    import csv

    rows = quiet(["vllm-v1"], [1.0], TARGETS, BASE)
    bytes_of(rows, tmp_path)
    (from_csv,) = csv.DictReader((tmp_path / "rows.csv").open())
    assert json.loads((tmp_path / "rows.json").read_text()) == rows
    assert from_csv == {name: "" if value is None else str(value) for name, value in rows[0].items()}
