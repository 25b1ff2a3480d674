"""Every committed notebook runs from top to bottom in a fresh kernel: from an empty folder, without GPU and network.
What it prints and draws is what was committed.

Says which cell fails and why, and prints the slowest cells. A notebook whose first cell says that it needs SmolLM2 is
skipped where the model has not been fetched; in CI (CI=true) a missing model is a failure.
"""

import os
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import frozen
import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_SECONDS = 300  # against a cell that hangs
CPU_SECONDS = 600  # against a notebook that runs away; "under 60 s on 2 cores" is measured, not tested
GIB = 1.5  # peak memory that a laptop can spare
WHOLE = "test_runs_top_to_bottom"
NOWHERE = "http://127.0.0.1:9"
ALONE = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "PIP_NO_INDEX": "1",
    **{name: NOWHERE for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")},
}
# Not ru_maxrss: a process starts with that of the one it was forked from, which is this one.
USAGE = """import re, resource
_usage = resource.getrusage(resource.RUSAGE_SELF)
print(_usage.ru_utime + _usage.ru_stime, re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])"""
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def needs_smollm2(notebook) -> bool:
    return "Needs SmolLM2" in notebook.cells[0].source


def read(path: Path):
    notebook = nbformat.read(path, as_version=4)
    if needs_smollm2(notebook):
        from minibatch.model.smollm2 import gguf_path

        if not gguf_path().exists():
            why = f"{path.name} needs SmolLM2, which is not in the cache: python -m minibatch models --fetch smollm2"
            pytest.fail(why, pytrace=False) if os.environ.get("CI") else pytest.skip(why)
    return notebook


def run(notebook, folder: Path) -> list[tuple[float, int]]:
    """Execute all cells; returns (seconds, cell number), slowest first. A cell that fails fails the test."""
    started: list[float] = []
    times: list[tuple[float, int]] = []

    def end(cell, cell_index, execute_reply):
        times.append((time.perf_counter() - started[-1], cell_index))

    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        coalesce_streams=True,
        config=Config({"KernelManager": {"transport_encryption": "auto"}}),  # or ipykernel warns at each start
        resources={"metadata": {"path": str(folder)}},
        on_cell_execute=lambda cell, cell_index: started.append(time.perf_counter()),
        on_cell_executed=end,
    )
    failed = None
    try:
        client.execute(env=os.environ | ALONE | {"PYTHONHASHSEED": "random"})
    except CellExecutionError as error:
        failed = error
    if failed:  # outside the except block, or pytest would print the chain as well
        kinds = [[output.output_type for output in _outputs(cell)] for cell in notebook.cells]
        where = next(index for index, each in enumerate(kinds) if "error" in each)
        last_lines = "\n".join(ANSI.sub("", failed.traceback).splitlines()[-12:])
        pytest.fail(f"cell {where}:\n\n{notebook.cells[where].source}\n\n{last_lines}", pytrace=False)
    return sorted(times, reverse=True)


def _outputs(cell) -> list:
    return cell.get("outputs", [])


@pytest.fixture(scope="module")
def executions(request, tmp_path_factory):
    """The chosen notebooks, each in an empty folder of its own, two kernels of one thread at a time."""
    chosen = [item.callspec.params["path"] for item in request.session.items if item.originalname == WHOLE]
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {path: pool.submit(execute, path, tmp_path_factory.mktemp(path.stem)) for path in chosen}
        pool.shutdown(cancel_futures=True)  # pytest -x


def execute(path: Path, folder: Path) -> tuple[float, float, list[tuple[float, int]]]:
    """Run a notebook and compare its outputs with the committed ones, as `notebooks/build.py --check` does.

    Returns its CPU seconds, its peak memory in GiB, and its cells' times, slowest first.
    """
    notebook = read(path)
    measured = sys.platform == "linux"  # elsewhere `resource` is missing, or counts otherwise
    notebook.cells.append(nbformat.v4.new_code_cell(USAGE if measured else "print(0, 0)"))
    slowest = run(notebook, folder)
    cpu_seconds, peak_kib = (float(word) for word in notebook.cells.pop().outputs[0].text.split())
    assert not list(folder.iterdir()), "the notebook left files behind"
    frozen.freeze(notebook, path.stem)
    drifted = frozen.check(path, notebook)
    assert not drifted, "; ".join(drifted)
    return cpu_seconds, peak_kib / 2**20, slowest


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_top_to_bottom(path, executions):
    """Under a random hash seed, and with the committed outputs."""
    cpu_seconds, peak_gib, slowest = executions[path].result()
    print(f"{path.name}: {cpu_seconds:.0f} s of CPU, peak {peak_gib:.2f} GiB; slowest cells", end=" ")
    print(", ".join(f"#{index} {seconds:.1f} s" for seconds, index in slowest[:3]))
    assert cpu_seconds < CPU_SECONDS
    assert peak_gib < GIB


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_cell_may_be_run_twice(path, tmp_path):
    """As readers do. The second time it prints what it printed the first time, unless it measures."""
    notebook = read(path)
    notebook.cells = [
        twin
        for cell in notebook.cells
        for twin in ([cell, nbformat.v4.new_code_cell(cell.source)] if cell.cell_type == "code" else [cell])
    ]
    run(notebook, tmp_path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for first, second in zip(code[::2], code[1::2]):
        if "local" not in first.metadata.get("tags", []):
            assert [o.get("text") for o in _outputs(first)] == [o.get("text") for o in _outputs(second)], first.source


def test_there_are_notebooks():
    assert NOTEBOOKS
