"""Kernels as a student writes them: the gallery of bugs, each found at its line; the ladder, silent; C++ mistakes."""

import difflib
from pathlib import Path

import pytest
from compiled_kernels import needs_compiler

from minibatch.cuda.__main__ import main
from minibatch.cuda.attempt import try_kernel
from minibatch.cuda.build import HERE

BUGS, LADDER = HERE / "bugs", HERE / "kernels"

# bug: its rung, what the first report is, and a piece of the line it names
GALLERY = {
    "missing_barrier": ("k3_block", "uninitialised read", "whole.merge(top[w]"),
    "divergent_barrier": ("k3_block", "divergent barrier", "__syncthreads();"),
    "early_return": ("k3_block", "barrier after return", "__syncthreads();"),
    "wrong_group_divisor": ("k2_warp", "uninitialised read", "part += q[e] * to_float(kv.k[at"),
    "int_overflow": ("k1_thread", "out of bounds", "score += to_float(q[d]) * to_float(kv.k[at"),
    "past_the_context": ("k2_warp", "uninitialised read", "part += q[e] * to_float(kv.k[at"),
    "half_a_warp": ("k4_vector", "deadlock", "if (lane < LANES) merge_lanes"),
    "array_index": ("k3_block", "array index", "acc[e * 32 + lane][warp] = state.acc[e];"),
    "same_place": ("k6_split", "race", "parts.acc[at * D + d]"),
    "minus_one_slot": ("cache_write", "out of bounds", "uint4*>(k_cache + at)"),
}


def code(path: Path) -> list[str]:
    """Without the comment at the top."""
    lines = path.read_text().splitlines()
    return lines[lines.index("#pragma once") :]


def test_the_gallery_is_all_of_it():
    assert {path.stem for path in BUGS.glob("*")} == set(GALLERY)


@pytest.mark.parametrize("name", GALLERY)
def test_a_bug_is_its_rung_but_for_a_few_lines(name):
    rung = code(LADDER / f"{GALLERY[name][0]}.cuh")
    changed = [line for line in difflib.ndiff(rung, code(BUGS / f"{name}.cuh")) if line[0] in "+-"]
    assert 0 < len(changed) <= 19, "\n".join(changed)


@needs_compiler
@pytest.mark.parametrize("name", GALLERY)
def test_each_bug_is_found_at_its_line(name):
    _, kind, fragment = GALLERY[name]
    path = BUGS / f"{name}.cuh"
    first = try_kernel(path).reports[0]
    where = [(first.place.path, first.place.line), *first.place.callers]
    lines = [path.read_text().splitlines()[line - 1] for file, line in where if Path(file) == path]
    assert first.kind == kind and any(fragment in line for line in lines), first


@needs_compiler
def test_a_wrong_divisor_that_stays_in_bounds_is_found_by_its_numbers():
    """8 query heads on 4 KV heads: head / 4 is a KV head, but head / 2 is meant. Every access is lawful."""
    found = try_kernel(BUGS / "wrong_group_divisor.cuh", heads=8, kv_heads=4)
    assert found.reports == [] and not found.error
    right = [head for head in range(8) if head // 2 == head // 4]
    wrong = [head for head in range(8) if head not in right]
    assert f"heads {', '.join(map(str, wrong))}\n" in found.wrong and right == [0, 1]
    assert not (found.worst < 0.1)


@needs_compiler
@pytest.mark.parametrize("path", sorted(LADDER.glob("[kc][1-6a]*_*.cuh")), ids=lambda path: path.stem)
def test_the_ladder_is_silent(path, capsys):
    assert main(["run", str(path), "--checked"]) == 0
    assert capsys.readouterr() == ("", "")


@needs_compiler
def test_the_command_names_file_and_line(capsys):
    assert main(["run", str(BUGS / "past_the_context.cuh"), "--lengths", "3"]) == 1
    said = capsys.readouterr().out
    line = next(
        i for i, text in enumerate((BUGS / "past_the_context.cuh").read_text().splitlines(), 1) if "kv.k[at" in text
    )
    assert said.startswith(f"uninitialised read at past_the_context.cuh:{line}, kernel k2_warp\n")
    assert "reads k[" in said and "never written" in said


@needs_compiler
def test_several_files_are_tried_and_named(capsys):
    right, wrong = LADDER / "k1_thread.cuh", BUGS / "int_overflow.cuh"
    assert main(["run", str(right), str(wrong), str(right)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == str(wrong) and said[1].startswith("out of bounds at int_overflow.cuh")
    assert str(right) not in said


@needs_compiler
def test_a_mistake_in_the_c_plus_plus_is_the_compiler_s_first_error():
    source = (LADDER / "k1_thread.cuh").read_text().replace("float score = 0.f;", "floatt score = 0.f;")
    error = try_kernel(source).error
    line = next(i for i, text in enumerate(source.splitlines(), 1) if "floatt" in text)
    assert f".cuh:{line}:" in error and "error" in error and len(error.splitlines()) <= 4


@needs_compiler
def test_a_kernel_from_a_string_with_its_table_and_picture():
    attempt = try_kernel((LADDER / "k2_warp.cuh").read_text() + "// mine\n", lengths=(3, 20))
    assert attempt.ok and str(attempt).startswith("Nothing found.") and attempt.worst < 1e-6
    assert "k[" not in attempt.table() and " k " in attempt.table()
    axes = attempt.picture("v").axes[0]
    assert axes.get_ylabel() == "block of v"
    assert len(axes.patches) == 3 * 2  # three K/V blocks, each read by the two CUDA blocks that hold 8 heads in fours


def test_what_cannot_be_tried_is_refused(capsys):
    assert main(["run", str(LADDER / "k7_async.cuh")]) == 2
    assert main(["run", str(LADDER / "common.cuh")]) == 2
    assert main(["run", str(LADDER / "k1_thread.cuh"), "--head-dim", "24"]) == 2
    assert main(["run", str(LADDER / "k1_thread.cuh"), "--heads", "7"]) == 2
    assert main(["run", "no_such_file.cuh"]) == 2
    said = capsys.readouterr().err.splitlines()
    for line, words in zip(said, ("only a GPU", "no kernel of the ladder", "head_dim=24", "7 heads", "No such file")):
        assert line.startswith("error: ") and words in line


@needs_compiler
def test_the_doctor(capsys, monkeypatch):
    assert main(["doctor"]) == 0
    lines = _lines(capsys)
    assert lines[-1] == "OK"
    assert [line.split()[2] for line in lines if line.startswith("backend")][:3] == ["works"] * 3
    monkeypatch.setenv("CXX", "/no/such/g++")
    assert main(["doctor"]) == 1
    lines = _lines(capsys)
    assert lines[-1] == "not OK"
    assert any(line.startswith("backend checked") and "apt-get install g++" in line for line in lines)


def _lines(capsys) -> list[str]:
    return capsys.readouterr().out.splitlines()
