"""The command line as a person or a program uses it."""

import json
import subprocess
import sys

import pytest

from minibatch import load_trace
from minibatch.__main__ import main


def python(*arguments, **options):
    """Run this Python, return what came of it."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=240, **options)


def test_compare_prints_one_json_object(tmp_path):
    done = python("-m", "minibatch", "compare", "--model", "tiny", "--json", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["model"] == "tiny" and found["requests"] == 24
    runs = {run["scheduler"]: run for run in found["runs"]}
    assert list(runs) == ["static", "dynamic", "iteration"]
    fields = "scheduler memory steps dead_slot_steps mean_live_slots useful_tokens seconds ttft_p50 ttft_p95 e2e_p50"
    assert set((fields + " e2e_p95 n texts_sha256").split()) == set(runs["static"])
    assert len({run["texts_sha256"] for run in runs.values()}) == 1
    assert runs["iteration"]["steps"] < runs["static"]["steps"]
    assert runs["iteration"]["dead_slot_steps"] == 0 < runs["static"]["dead_slot_steps"]
    assert {run["n"] for run in runs.values()} == {24}


def test_compare_prints_a_table_and_draws(tmp_path, capsys):
    arguments = ["compare", "--model", "tiny", "--requests", "6", "--max-num-seqs", "2", "--out", str(tmp_path)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "The texts are identical." in out and "With n=6, p95 is simply the slowest request." in out
    pages, runs = {"compare_steps.png", "compare_seconds.png", "compare.html"}, ("static", "dynamic", "iteration")
    assert {path.name for path in tmp_path.iterdir()} == pages | {f"compare_{name}.trace.json" for name in runs}
    assert load_trace(tmp_path / "compare_static.trace.json").finished


def test_compare_on_paged_memory_runs_more_at_once_on_as_many_positions(tmp_path):
    options = ["--model", "tiny", "--memory", "paged", "--json", "--out", str(tmp_path)]
    done = python("-m", "minibatch", "compare", *options)
    assert done.returncode == 0, done.stderr
    contiguous, paged = json.loads(done.stdout)["runs"]
    assert (contiguous["memory"], paged["memory"]) == ("contiguous", "paged")
    assert contiguous["texts_sha256"] == paged["texts_sha256"] and paged["n"] == contiguous["n"] == 24
    assert paged["kv_positions"] <= contiguous["kv_positions"]
    assert (
        paged["peak_running"] > 3 * contiguous["peak_running"] and contiguous["preemptions"] == 0 < paged["preemptions"]
    )
    assert 0.9 < paged["kv_use_queued"] <= paged["kv_taken_queued"] <= 1
    assert contiguous["kv_use_queued"] < 0.5 and contiguous["kv_taken_queued"] == 1


def test_compare_on_paged_memory_says_so_and_draws(tmp_path, capsys):
    sizes = ["--requests", "9", "--max-new-tokens", "40", "--max-num-seqs", "2", "--block-size", "16"]
    names = ["--schedulers", "static", "iteration"]
    assert main(["compare", "--model", "tiny", "--memory", "paged", *sizes, *names, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "158 K/V positions (0.1 MB) as 2 regions or as blocks of 16" in out and "The texts are identical." in out
    assert "static: up to 2 requests ran at once in blocks of 16, up to 2 in regions." in out
    assert (
        "iteration: up to 5 requests ran at once in blocks of 16, up to 2 in regions. While others waited, KV use"
        in out
    )
    runs = {f"compare_{name}_{memory}.trace.json" for name in names[1:] for memory in ("contiguous", "paged")}
    pages = {f"compare_{name}.png" for name in ("steps", "seconds", "memory")} | {"compare.html"}
    assert {path.name for path in tmp_path.iterdir()} == pages | runs


def test_different_texts_end_badly(tmp_path, capsys, monkeypatch):
    from minibatch.model.tokenizer import Tokenizer

    texts = iter(range(1000))
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: f"text {next(texts)}")
    assert main(["compare", "--model", "tiny", "--requests", "2", "--out", str(tmp_path)]) == 1
    assert "THE TEXTS DIFFER" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["compare", "--model", "smolm2"], "model 'smolm2': did you mean 'smollm2'"),
        (["compare", "--model", "tiny", "--requests", "0"], "--requests 0: must be between 1 and 24"),
        (["compare", "--model", "tiny", "--max-num-seqs", "0"], "max_num_seqs=0: must be at least 1"),
        (["compare", "--model", "tiny", "--max-new-tokens", "0"], "max_new_tokens=0"),
        (["compare", "--model", "tiny", "--rate", "-1"], "rate=-1.0"),
        (["compare", "--model", "tiny", "--reserve", "half"], "reserve='half': choose one of max, pow2, exact"),
        (["compare", "--model", "tiny", "--block-size", "8"], "--block-size 8: contiguous memory has no blocks"),
        (["compare", "--model", "tiny", "--memory", "paged", "--block-size", "0"], "block_size=0: must be at least 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(arguments, message, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ") and message in error


def test_unknown_commands_and_options_are_exit_code_2(capsys):
    for arguments in (["serve"], [], ["compare", "--schedulers", "orca"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2


def test_models_lists_what_there_is(capsys):
    assert main(["models"]) == 0
    out = capsys.readouterr().out
    assert "tiny" in out and "smollm2" in out and "MINIBATCH_CACHE" in out


def test_doctor_says_ok(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "count to 5: 1 2 3 4 5" in out and out.strip().endswith("OK")


def test_schedulers_memory_and_engine_do_without_torch():
    rooms = "schedulers, minibatch.memory, minibatch.engine, minibatch.simulate, minibatch.workload, minibatch.plot"
    program = f"import minibatch.{rooms}, sys; assert 'torch' not in sys.modules"
    assert python("-c", program).returncode == 0
    assert python("-c", "import minibatch.model, sys; assert 'torch' not in sys.modules").returncode == 1, "it can fail"
