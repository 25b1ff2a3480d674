"""`gpu_check` without a GPU: what it will check and time, its tables, and its stages with a CPU in the GPU's place."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from compiled_kernels import needs_compiler

from minibatch.cuda import backends, ops
from minibatch.cuda.gpu_check import __main__ as command
from minibatch.cuda.gpu_check import correct, others, report, shapes, timing, tools
from minibatch.cuda.gpu_check.timing import Row
from minibatch.cuda.library import load

SMALL = shapes.Model(heads=8, kv_heads=2, head_dim=64, dtype=torch.float32, block_size=16)
GIB = 2**30

# What compute-sanitizer and ncu print, in the form their manuals give.
MEMCHECK = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACECHECK = "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n"
NCU = f"""==PROF== Connected to process 42
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","42","void k1_thread<__nv_bfloat16, 128>(...)","{tools.METRICS["requests"]}","","1,200"
"0","42","void k1_thread<__nv_bfloat16, 128>(...)","{tools.METRICS["sectors"]}","sector","9,600"
"1","42","void k6_split<__nv_bfloat16, 128, 4>(...)","{tools.METRICS["requests"]}","","50"
"2","42","void k6_merge<__nv_bfloat16, 128>(...)","{tools.METRICS["requests"]}","","7"
"3","42","void k7_async<__nv_bfloat16, 128, 4>(...)","{tools.METRICS["requests"]}","","40"
"4","42","void k6_merge<__nv_bfloat16, 128>(...)","{tools.METRICS["requests"]}","","7"
"""


def test_without_a_gpu_it_is_one_sentence_and_exit_code_2(tmp_path, capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert command.main(["--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1 and said.err.startswith("gpu_check cannot run: torch")
    assert not (tmp_path / "out").exists()


def test_it_needs_no_package_but_torch_and_numpy():
    hidden = ["platformdirs", "matplotlib", "tqdm", "tokenizers", "safetensors", "gguf", "jinja2", "ipywidgets"]
    code = f"import sys; sys.modules |= dict.fromkeys({hidden}); import minibatch.cuda.gpu_check.__main__ as m; "
    done = subprocess.run([sys.executable, "-c", code + "m.main(['--help'])"], capture_output=True, text=True)
    assert done.returncode == 0 and "--out" in done.stdout, done.stderr


def test_what_has_to_be_moved_for_llama_3_8b():
    """4,096 bytes of K and V a position and layer; beside them a query and a result of 32 x 128 in bfloat16."""
    assert shapes.LLAMA_3_8B.position_bytes == 4096
    assert shapes.LLAMA_3_8B.bytes_moved(64, 4096) == 64 * (4096 * 4096 + 2 * 8192)


def test_timed_shapes_are_the_issue_s_and_those_that_do_not_fit_are_named():
    fits, too_large = shapes.timed_shapes(141 * GIB)
    assert len(fits) == 20 and too_large == [] and fits[0] == (1, 128) and fits[-1] == (256, 32768)
    assert set(shapes.AIMS) <= set(fits)
    fits, too_large = shapes.timed_shapes(40 * GIB)
    assert (64, 32768) in fits and (256, 32768) not in fits
    assert len(fits) + len(too_large) == 20 and too_large[-1].startswith(
        "batch 256, context 32768: K and V take 32 GiB"
    )


def test_a_row_counts_bytes_once_and_compares_with_the_copy():
    row = timing.row("rung 6", 1, 4096, 10e-6, 7, 4e12)
    assert row == Row("rung 6", 1, 4096, 7, 10.0, 1679.4, 42.0)


ROWS = [
    Row("rung 5", 1, 32768, 9, 900.0, 149.2, 3.5),
    Row("rung 6", 1, 32768, 9, 40.0, 3355.0, 78.2),
    Row("rung 6", 64, 4096, 9, 500.0, 2147.0, 50.1),
    Row("gather + SDPA", 64, 4096, 9, 2000.0, 537.0, 12.5),
]


def test_the_table_has_a_row_a_shape_and_a_column_a_kernel():
    lines = report.times(ROWS).splitlines()
    assert lines[0] == "| batch | context | rung 5 | rung 6 | gather + SDPA |"
    assert lines[2:] == [
        "| 1 | 32,768 | 4 % (900 µs) | 78 % (40 µs) |  |",
        "| 64 | 4,096 |  | 50 % (500 µs) | 12 % (2,000 µs) |",
    ]
    said = report.aims(ROWS)
    assert "Rung 6 at batch 64, context 4,096: 50 % of the copy bandwidth, the aim of 70 % missed." in said
    assert "context 32,768: 78 % of the copy bandwidth, the aim of 70 % reached." in said


def test_the_plot_has_a_panel_a_batch_and_a_line_a_kernel():
    figure = report.plot(report.Findings({"card": "a card"}, rows=ROWS))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["batch 1", "batch 64"]
    assert figure.axes[0].get_lines()[1].get_xydata().tolist() == [[32768.0, 78.2]]
    assert [text.get_text() for text in figure.legends[0].texts] == ["rung 5", "rung 6", "gather + SDPA"]


def test_what_the_tools_say():
    assert tools.verdict(MEMCHECK) == "0 errors"
    assert tools.verdict(RACECHECK) == "2 hazards displayed (1 error, 1 warning)"
    assert (
        tools.verdict("========= Error: Device not supported\n")
        == "gave no verdict; it said: Error: Device not supported"
    )
    assert tools.read_ncu(NCU) == {
        1: {"requests": 1200, "sectors": 9600},
        6: {"requests": 57, "sectors": 0},
        7: {"requests": 47, "sectors": 0},
    }
    assert tools.read_ncu("==ERROR== ERR_NVGPUCTRPERM") == {}
    table = report.counted({"1": {"requests": 1100, "sectors": 9000}}, tools.read_ncu(NCU))
    assert table.splitlines()[-1] == "| rung 1 | 1,100 | 1,200 | 9,000 | 9,600 |"


def test_a_tool_that_hangs_ends_with_all_it_started(tmp_path):
    child = f"import subprocess; subprocess.run(['sh', '-c', 'echo $$ > {tmp_path}/pid; sleep 60'])"
    assert tools._run([sys.executable, "-c", child], seconds=2.0) == "not finished in 2 s"
    assert tools._run([sys.executable, "-c", "print('said')"], seconds=60) == "said\n"
    pid = tmp_path / "pid"
    assert not pid.exists() or not _runs(int(pid.read_text()))


def _runs(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


@needs_compiler
def test_what_is_stored_is_what_the_emulator_gives_now(monkeypatch):
    """Else `python -m minibatch.cuda.gpu_check --store` has to be run again."""
    monkeypatch.setattr(correct, "LIBRARIES", ((torch.float32, 64), (torch.bfloat16, 128)))
    stored, now = torch.load(correct.STORED, weights_only=True), correct.emulate()
    assert len(stored["results"]) == len(shapes.LIBRARIES) * 6
    for name, out in now["results"].items():
        assert torch.allclose(stored["results"][name], out, atol=1e-6)
    assert stored["predicted"].keys() == now["predicted"].keys()
    for rung in now["predicted"]:  # compilers differ in how they read scalars
        assert stored["predicted"][rung]["sectors"] == pytest.approx(now["predicted"][rung]["sectors"], rel=0.1)


@needs_compiler
def test_the_check_passes_sound_kernels_and_counts_wrong_ones():
    launch = correct.launch_with(load("fast", torch.float32, 64), "cpu")
    (check,) = correct.check(torch.float32, 64, launch, rungs=(6,))
    assert (check.launches, check.failed, check.emulated_failed) == (6, 0, 0) and check.worst < 4e-6

    def wrong(scene, rung):
        out = launch(scene, rung)
        out[-1, 0, 0] += 1e-3
        return out

    (check,) = correct.check(torch.float32, 64, wrong, rungs=(6,))
    assert (check.failed, check.emulated_failed) == (6, 1) and check.worst == pytest.approx(1e-3, rel=0.01)


@pytest.mark.filterwarnings("ignore:flex_attention called without")  # compiled it would take a minute
def test_what_stands_beside_the_ladder_computes_the_same(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **how: function)
    torch.manual_seed(0)
    pool = torch.randn(2, 40, 16, 2, 64).unbind()
    scene = timing.decode_scene(3, 100, pool, SMALL)
    assert len(set(scene.block_table.flatten().tolist())) == 3 * 7  # no block belongs to two sequences
    for prepare in (others.gather_and_sdpa, others.sdpa, others.flex):
        out = prepare(scene)().view(scene.q.shape)
        assert torch.allclose(out.double(), scene.truth(), atol=1e-5)


class StubClock:
    """Runs a launch once, and says that it took 0.1 ms."""

    def median(self, launch):
        launch()
        return 1e-4, 3

    def copy_bandwidth(self):
        return 1e11


@pytest.fixture
def cpu_as_gpu(monkeypatch):
    """A CPU in the place of the GPU, two small shapes in that of the twenty."""
    library = load("fast", torch.float32, 64)
    monkeypatch.setattr(backends, "missing", lambda backend: [])
    monkeypatch.setattr(backends, "architecture", lambda: "sm_00")
    monkeypatch.setattr(correct, "build_all", lambda arch: {(torch.float32, 64): library})
    monkeypatch.setattr(correct, "launch_with", lambda built, launch=correct.launch_with: launch(built, "cpu"))
    monkeypatch.setattr(correct, "check", lambda *given, check=correct.check: check(*given, rungs=(1, 6)))
    monkeypatch.setattr(command, "_machine", lambda line: {"card": "none", "command": line})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GIB, GIB))
    monkeypatch.setattr(shapes, "timed_shapes", lambda free: ([(1, 40), (3, 100)], ["one is too large"]))
    monkeypatch.setattr(timing, "Clock", StubClock)
    monkeypatch.setattr(timing, "make_pool", lambda positions: torch.randn(2, 40, 16, 2, 64).unbind())
    make = timing.decode_scene
    monkeypatch.setattr(timing, "decode_scene", lambda batch, context, pool: make(batch, context, pool, SMALL))
    attend = ops.paged_attention
    monkeypatch.setattr(ops, "paged_attention", lambda *x, backend, rung: attend(*x, backend="torch"))
    monkeypatch.setattr(tools, "sanitize", lambda tool, seconds: "0 errors")
    monkeypatch.setattr(tools, "profile", lambda seconds: tools.read_ncu(NCU))


@needs_compiler
def test_all_stages_end_in_a_json_file_a_page_and_a_plot(cpu_as_gpu, tmp_path, capsys):
    assert command.main(["--out", str(tmp_path)]) == 0, capsys.readouterr().err
    found = json.loads((tmp_path / "gpu_check.json").read_text())
    assert [check["rung"] for check in found["checks"]] == [1, 6]
    names = [row["name"] for row in found["rows"] if row["batch"] == 3]
    assert names == [*(f"rung {r}" for r in shapes.RUNGS), "SDPA, K/V in a row", "gather + SDPA"]
    assert found["sanitizer"] == {"memcheck": "0 errors", "racecheck": "0 errors"}
    page = (tmp_path / "gpu_check.md").read_text()
    assert "* card: none" in page and "* one is too large" in page and "A copy moves 100 GB/s" in page
    assert (tmp_path / "gpu_check.png").stat().st_size > 10_000


@needs_compiler
def test_a_wrong_kernel_is_exit_code_1_and_is_not_timed(cpu_as_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(correct, "launch_with", lambda built: lambda scene, rung: torch.zeros_like(scene.q))
    assert command.main(["--out", str(tmp_path)]) == 1
    assert json.loads((tmp_path / "gpu_check.json").read_text())["rows"] == []


@needs_compiler
def test_a_wrong_result_while_timing_is_exit_code_1(cpu_as_gpu, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ops, "paged_attention", lambda *x, backend, rung: torch.zeros_like(x[0]))
    assert command.main(["--out", str(tmp_path)]) == 1
    assert "rung 1 is wrong at batch 1, context 40" in capsys.readouterr().err
