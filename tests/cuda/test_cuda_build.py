"""Compiling into the cache, and what goes wrong there (A34). Most tests use a compiler that only pretends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compiled_kernels import needs_compiler

from minibatch.cuda import cache as cache_module
from minibatch.cuda import compilers
from minibatch.cuda.build import build, compiler_output
from minibatch.cuda.compilers import check_arch, host_compiler, nvcc
from minibatch.cuda.errors import BuildError, KernelUnavailable
from minibatch.cuda.library import Library

ROOT = Path(__file__).parents[2]
PRETENDER = """#!/bin/sh
[ "$1" = --version ] && {{ echo "{banner}"; exit; }}
[ "$1" = --list-gpu-code ] && {{ echo sm_80 sm_90; exit; }}
echo "$@" >> {log}
while [ "$1" != -o ]; do shift; done
echo half > "$2"
{then}
echo whole > "$2"
"""


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """pretend(name, banner, then) puts a compiler on an otherwise empty PATH, and returns the log of its calls.

    It writes its output in two steps. The cache is a new folder.
    """
    (tmp_path / "bin").mkdir()
    for name in ("CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("MINIBATCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compilers.glob, "glob", lambda pattern: [])
    monkeypatch.setattr(compilers, "USUAL_TOOLKIT", str(tmp_path / "no-toolkit"))

    def make(name="g++", banner="g++ (pretending) 12.2.0", then=""):
        program, log = tmp_path / "bin" / name, tmp_path / f"{name}.log"
        program.write_text(PRETENDER.format(banner=banner, log=log, then=then))
        program.chmod(0o755)
        return log

    return make


def calls(log, word=".cpp"):
    """How often the compiler was called for the kernels; the layer below them is compiled apart."""
    return sum("paged_attention" in line and word in line for line in log.read_text().splitlines())


def kept(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache" / "kernels").iterdir())


def in_another_process(code):
    """A Python that runs a line, in a process group of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True, process_group=0)


BUILD = "from minibatch.cuda.build import build; print(build('fast'))"


def test_a_library_is_compiled_once(pretend):
    log = pretend()
    first = build("fast", {"HEAD_DIM": "64"})
    assert first.read_text() == "whole\n" and build("fast", {"HEAD_DIM": "64"}) == first and calls(log) == 1
    assert compiler_output(first) == ""


def test_flags_and_sources_and_compilers_make_another(pretend, tmp_path):
    log, mine = pretend(), tmp_path / "mine.cuh"
    mine.write_text("one")
    made = {build("fast", {"K3": "mine"}, include=[mine])}
    mine.write_text("two")
    made |= {build("fast", {"K3": "mine"}, include=[mine]), build("fast"), build("checked")}
    pretend(banner="g++ (pretending) 13.1.0")
    made.add(build("fast"))
    assert len(made) == 5 and calls(log) == 5


def test_kernels_are_instrumented_and_the_layer_below_is_not(pretend):
    log = pretend()
    build("checked")
    lines = [line for line in log.read_text().splitlines() if " -c " in line]
    assert all(("-fsanitize=thread" in line) == ("paged_attention_cpu.cpp" in line) for line in lines)
    assert len(lines) > 3


def test_two_processes_at_once(pretend):
    log = pretend(then="/bin/sleep 0.3")
    both = [in_another_process(BUILD) for _ in range(2)]
    paths = {process.communicate(timeout=120)[0].strip() for process in both}
    assert len(paths) == 1 and Path(*paths).read_text() == "whole\n" and calls(log) == 1


def test_a_killed_build_leaves_nothing_that_looks_whole(pretend, tmp_path):
    log = pretend(then="/bin/sleep 600")
    process = in_another_process(BUILD)
    deadline = time.monotonic() + 120
    while not log.exists() and time.monotonic() < deadline:  # the first compiler has written half of its output
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert [name for name in kept(tmp_path) if ".tmp-" in name]
    assert not [name for name in kept(tmp_path) if name.endswith((".so", ".o"))]
    pretend()
    assert build("fast").read_text() == "whole\n"
    assert not [name for name in kept(tmp_path) if ".tmp-" in name]


def test_a_lock_left_behind_holds_nobody_up(pretend, tmp_path):
    pretend()
    path = build("fast")
    path.unlink()
    assert (path.parent / f"{path.name}.lock").exists()
    assert build("fast") == path and path.exists()


def test_a_home_that_cannot_be_written(pretend, tmp_path, monkeypatch, caplog):
    pretend()
    monkeypatch.delenv("MINIBATCH_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(cache_module.tempfile, "tempdir", str(tmp_path))
    assert build("fast").parent == tmp_path / f"minibatch-kernels-{os.getuid()}"
    assert "/proc/nowhere" in caplog.text and str(tmp_path) in caplog.text


def test_a_named_cache_that_cannot_be_written_is_not_replaced(pretend, monkeypatch):
    pretend()
    monkeypatch.setenv("MINIBATCH_CACHE", "/proc/nowhere")
    with pytest.raises(KernelUnavailable, match="/proc/nowhere.*set MINIBATCH_CACHE"):
        build("fast")


def test_a_folder_of_somebody_else_is_not_trusted(pretend, tmp_path, monkeypatch):
    """Libraries are code: in a world-writable temporary folder another user could have put one first."""
    pretend()
    monkeypatch.setattr(cache_module.os, "getuid", lambda: 12345)
    (tmp_path / "cache" / "kernels").mkdir(parents=True)
    os.chown(tmp_path / "cache" / "kernels", 23456, -1) if os.geteuid() == 0 else pytest.skip("needs root to chown")
    with pytest.raises(KernelUnavailable, match="belongs to somebody else"):
        build("fast")


def test_what_is_missing_is_named_with_where_it_was_looked_for(pretend, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/opt/no-such-toolkit")
    with pytest.raises(KernelUnavailable, match=r"g\+\+ 12 or clang\+\+ 14 not found .*g\+\+: not there.*apt-get"):
        host_compiler()
    with pytest.raises(KernelUnavailable, match=r"nvcc not found .*/opt/no-such-toolkit/bin/nvcc.*set CUDA_HOME"):
        nvcc()
    with pytest.raises(KernelUnavailable, match="nvcc not found"):
        build("cuda", arch="sm_90")


def test_a_compiler_that_is_too_old_is_passed_over(pretend, monkeypatch):
    pretend(banner="g++ (Debian 10.2.1-6) 10.2.1 20210110")
    pretend("nvcc", banner="nvcc: NVIDIA (R) Cuda compiler driver, release 10.2, V10.2.89")
    with pytest.raises(KernelUnavailable, match=r"g\+\+ 10.2 is older than 12.0"):
        host_compiler()
    with pytest.raises(KernelUnavailable, match="nvcc 10.2 is older than 11.8"):
        nvcc()
    pretend("clang++", banner="Debian clang version 14.0.6")
    assert host_compiler().kind == "clang++"


def test_a_compiler_that_is_named_is_not_replaced(pretend, monkeypatch):
    pretend()
    monkeypatch.setenv("CXX", "/opt/gcc-99/bin/g++")
    with pytest.raises(KernelUnavailable, match="/opt/gcc-99"):
        host_compiler()


def test_a_gpu_the_compiler_does_not_know(pretend):
    pretend("nvcc", banner="nvcc: NVIDIA (R) Cuda compiler driver, release 13.0, V13.0.88")
    check_arch(nvcc(), "sm_90")
    with pytest.raises(KernelUnavailable, match="nvcc 13.0 .*cannot compile for sm_70, only for sm_80, sm_90"):
        check_arch(nvcc(), "sm_70")


def test_another_system_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(compilers.sys, "platform", "darwin")
    with pytest.raises(KernelUnavailable, match="darwin"):
        host_compiler()


def test_importing_builds_nothing_and_torch_needs_no_compiler(pretend, tmp_path):
    code = (
        "import torch; from minibatch.cuda import ops\n"
        "one, c = torch.ones(1, dtype=torch.int32), torch.ones(1, 1, 1, 16)\n"
        "print(ops.paged_attention(c[0], c, c, one[None] - 1, one - 1, one, 1.0).sum())"
    )
    assert in_another_process(code).communicate(timeout=120)[0] == "tensor(16.)\n"
    assert not (tmp_path / "cache").exists()


@needs_compiler
def test_a_mistake_in_a_kernel_is_the_first_error_and_no_wall(tmp_path):
    mine = tmp_path / "mine.cuh"
    mine.write_text('#pragma once\n#include "kernels/common.cuh"\nint broken = undeclared;\n')
    with pytest.raises(BuildError, match="mine.cuh:3:14: error: .*undeclared") as raised:
        build("fast", {"SCALAR": "float", "HEAD_DIM": "64", "K3": f'"{mine}"'}, include=[mine])
    assert len(str(raised.value).splitlines()) <= 4 < len(raised.value.log.splitlines())


def test_a_damaged_library_is_named(tmp_path):
    (tmp_path / "damaged.so").write_text("half")
    with pytest.raises(KernelUnavailable, match="damaged.so does not load .*: delete it"):
        Library(tmp_path / "damaged.so", "fast")
