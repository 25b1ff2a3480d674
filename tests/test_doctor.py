"""`python -m minibatch doctor`: what is wrong comes last, with its cure; only what stops the course is exit code 1."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from minibatch.__main__ import main
from minibatch.commands import doctor
from minibatch.commands import doctor_install as install
from minibatch.commands import doctor_machine as machine
from minibatch.commands.doctor_finding import FINE, PROBLEM, REMARK, Finding, findings

ROOT = Path(__file__).resolve().parents[1]


def ask(monkeypatch, capsys, *checks, options=()):
    """The exit code and the output of a doctor who makes these checks only."""
    monkeypatch.setattr(doctor, "CHECKS", [(check.__name__, check) for check in checks])
    code = main(["doctor", *options])
    return code, capsys.readouterr().out


def worst(check) -> Finding:
    """What a check finds wrong, or its last finding."""
    found = list(check())
    return next((one for one in found if one.level != FINE), found[-1])


def test_here_every_check_finds_something_and_says_so_in_json(capsys):
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is True
    whats = [one["what"] for one in told["findings"]]
    for what in (
        "python",
        "minibatch",
        "torch",
        "ipywidgets",
        "jupyterlab_widgets",
        "notebook kernel",
        "font",
        "memory",
    ):
        assert what in whats
    for what in ("threads", "OpenMP", "model cache", "kernel cache", "disk", "compiler", "nvcc", "GPU", "smollm2"):
        assert what in whats
    assert all(bool(one["cure"]) == (one["level"] != "fine") for one in told["findings"])
    assert not [one for one in told["findings"] if "not looked at" in one["state"] or "Error" in one["state"]]


def test_what_is_wrong_comes_last_and_a_problem_is_exit_code_1(monkeypatch, capsys):
    def ill():
        yield Finding("torch", "missing", PROBLEM, "install it")
        yield Finding("load", "high", REMARK, "wait")
        yield Finding("numpy", "missing", PROBLEM, "install it")
        yield Finding("disk", "large")

    code, out = ask(monkeypatch, capsys, ill)
    assert code == 1 and out.strip().endswith("not OK")
    facts, _, rest = out.partition("\n\n")
    assert facts.splitlines()[-1].split() == ["disk", "large"]
    assert rest.index("REMARK: load: high\n  -> wait") < rest.index("PROBLEM: torch: missing\n  and numpy: missing\n")
    assert rest.count("install it") == 1


def test_a_remark_alone_is_exit_code_0(monkeypatch, capsys):
    def ill():
        yield Finding("load", "high", REMARK, "wait")

    code, out = ask(monkeypatch, capsys, ill)
    assert code == 0 and out.strip().endswith("a part of it may not, see above. OK")


def test_a_check_that_breaks_does_not_hide_the_others():
    def broken():
        yield Finding("first", "seen")
        raise ZeroDivisionError("by nought")

    def lacking():
        raise ModuleNotFoundError(name="torch")
        yield

    found = list(findings([("a", broken), ("b", lacking), ("c", install.python)]))
    assert [one.what for one in found] == ["first", "a", "b", "python"]
    assert (
        found[1][1:3] == ("ZeroDivisionError: by nought", REMARK)
        and found[2].state == "not looked at, torch is missing"
    )


def test_it_runs_where_no_package_is_installed(tmp_path):
    bare = [sys.executable, "-S", "-m", "minibatch"]  # -S: without site-packages
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*bare, "doctor"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "PROBLEM: torch: missing\n  and numpy: missing" in done.stdout and "not OK" in done.stdout
    assert f"-> run `{sys.executable} -m pip install -r requirements.txt`" in done.stdout
    done = subprocess.run([*bare, "models"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and re.match("error: .+ is missing; python -m minibatch doctor says", done.stderr)


def test_a_package_that_only_this_folder_sees_is_a_problem(monkeypatch):
    monkeypatch.setattr(install, "WHERE", install.WHERE.replace("'minibatch'", "'no_such_package'"))
    found = worst(install.package)
    assert found.level == PROBLEM and "cannot be imported from another folder" in found.state


def test_another_copy_of_the_package_is_a_problem(tmp_path, monkeypatch):
    (tmp_path / "minibatch").mkdir()
    (tmp_path / "minibatch" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = worst(install.package)
    assert found.level == PROBLEM and str(tmp_path) in found.state and "the other one" in found.cure


def test_old_and_missing_packages(monkeypatch):
    versions = {"torch": "2.3.1+cpu", "numpy": "1.26.0", "jupyterlab": None}
    monkeypatch.setattr(install, "_version", lambda name: versions.get(name, "99.0"))
    found = {one.what: one for one in install.packages()}
    assert found["torch"][1:3] == ("2.3.1+cpu, older than 2.4", PROBLEM) and found["numpy"].level == FINE
    assert found["jupyterlab"][1:3] == ("missing; it opens the notebooks", REMARK)


def test_the_versions_asked_for_are_those_of_pyproject():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[(.+?)\]", text, re.S | re.M)[1]
    assert dict(re.findall(r'"([\w-]+)>=([\d.]+)"', block)) == install.NEEDED


@pytest.mark.parametrize("version", ["2.0.0", None])
def test_widget_parts_that_do_not_belong_together(version, monkeypatch):
    versions = {"ipywidgets": "8.1.9", "jupyterlab_widgets": version, "widgetsnbextension": "4.0.16"}
    monkeypatch.setattr(install, "_version", versions.get)
    found = worst(install.widgets)
    assert found.what == "jupyterlab_widgets" and found.level == REMARK and "jupyterlab_widgets==3.*" in found.cure


def test_a_widget_manager_that_jupyter_does_not_see(monkeypatch, tmp_path):
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *parts: [str(tmp_path)])
    assert "will not find its widget manager" in worst(install.widgets).state


def test_a_kernel_of_another_python(monkeypatch):
    spec = SimpleNamespace(argv=["/opt/other/bin/python", "-m", "ipykernel_launcher"])
    monkeypatch.setattr("jupyter_client.kernelspec.KernelSpecManager.get_kernel_spec", lambda self, name: spec)
    found = worst(install.kernel)
    assert found.level == REMARK and "another Python" in found.state and "ipykernel install" in found.cure


def test_fonts_that_lack_something(monkeypatch):
    monkeypatch.setattr(install, "GLYPHS", "·中")
    assert "without 中" in worst(install.fonts).state
    monkeypatch.setattr(install, "GLYPHS", "·")
    monkeypatch.setattr(install, "_ink_of_a_hatch", lambda: 0.0)
    assert worst(install.fonts).state == "comes out plain"

    def nowhere(*names, **options):
        raise ValueError("Failed to find font")

    monkeypatch.setattr("matplotlib.font_manager.findfont", nowhere)
    found = worst(install.fonts)
    assert found.level == REMARK and "matplotlib's list of fonts" in found.cure


def test_little_memory(monkeypatch):
    monkeypatch.setattr(machine, "_system_memory", lambda: (8 << 30, 3 << 30))
    monkeypatch.setattr(machine, "CGROUP", Path("nowhere"))
    found = worst(machine.memory)
    assert found.state.startswith("3.0 of 8.0 GiB free, less than 4") and "kernels" in found.cure


def test_the_limit_of_a_container_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_system_memory", lambda: (64 << 30, 60 << 30))
    (tmp_path / "memory.max").write_text(f"{2 << 30}\n")
    (tmp_path / "memory.current").write_text(f"{1 << 30}\n")
    assert worst(machine.memory).state.startswith("1.0 of 2.0 GiB free")
    (tmp_path / "memory.max").write_text("max\n")
    assert worst(machine.memory).state == "60.0 of 64.0 GiB free"
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine._cores() == 0.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine._cores() == len(os.sched_getaffinity(0))


def test_memory_is_known_without_psutil(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    total, free = machine._system_memory()
    assert 0 < free <= total


def test_too_many_threads_and_a_busy_machine(monkeypatch):
    monkeypatch.setattr(machine, "_cores", lambda: 1.0)
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 1.0, 1.0))
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    found = {one.what: one for one in machine.processors()}
    assert found["threads"].level == found["load"].level == REMARK and "OMP_NUM_THREADS=1" in found["threads"].cure
    assert "OMP_NUM_THREADS=8" in found["OpenMP"].state


def test_folders_that_cannot_be_written_to_and_a_full_disk(monkeypatch, tmp_path):
    (tmp_path / "file").touch()  # nobody, root neither, makes a folder in a file
    monkeypatch.setenv("MINIBATCH_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda folder: SimpleNamespace(free=100 << 20))
    found = {one.what: one for one in machine.folders()}
    for what in ("model cache", "kernel cache", "disk"):
        assert found[what].level == REMARK and "MINIBATCH_CACHE" in found[what].cure
    assert found["disk"].state.startswith("0.1 GiB free") and found["temporary"].level == FINE


def test_compilers_that_are_missing_or_lame(monkeypatch, tmp_path):
    assert worst(machine.compilers).level == FINE
    lame = tmp_path / "g++"
    lame.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "g++ (x) 13.2.0" && exit 0\necho "error: no <cmath>" >&2; exit 1\n'
    )
    lame.chmod(0o755)
    monkeypatch.setenv("CXX", str(lame))
    found = worst(machine.compilers)
    assert found.level == REMARK and "cannot compile a line (error: no <cmath>)" in found.state
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    found = worst(machine.compilers)
    assert "not found" in found.state and "notebook 08" in found.state and "apt-get install g++" in found.cure


def test_a_model_that_is_not_there_and_one_that_cannot_count(monkeypatch, tmp_path):
    monkeypatch.setenv("MINIBATCH_CACHE", str(tmp_path))
    found = worst(machine.models)
    assert found.level == REMARK and "--fetch smollm2" in found.cure
    from minibatch.model.tokenizer import Tokenizer

    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "1 2 3")
    assert [one.level for one in machine.models()] == [REMARK, PROBLEM]
