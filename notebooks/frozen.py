"""How a notebook is executed, what of it is kept, and what counts as a difference. Used by build.py and build_labs.py.

Frozen: no widget views or state (their ids are random, and they show nothing without a kernel), no SVG
outputs (hidden in an untrusted notebook), no timings, no memory addresses; cell ids and counts that repeat.
"""

import base64
import importlib.metadata
import io
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import numpy as np
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image
from traitlets.config import Config

from minibatch.openmp import settle_waiting

DROPPED = ("application/vnd.jupyter.widget-view+json", "image/svg+xml")
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
CELL_SECONDS = 300
# Other versions of matplotlib lay text out differently; under the same one only noise of a few levels is left.
SAME_PIXEL = 64  # of 255


def execute(notebook: NotebookNode) -> None:
    """Run all cells in a new kernel, in an empty folder. Raises CellExecutionError at the first cell that fails."""
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            timeout=CELL_SECONDS,
            record_timing=False,
            store_widget_state=False,
            coalesce_streams=True,  # else the number of outputs depends on how fast a cell prints
            resources={"metadata": {"path": folder}},
            config=Config({"KernelManager": {"transport_encryption": "auto"}}),  # or ipykernel warns at each start
        )
        environment = dict(os.environ)
        settle_waiting(environment)
        client.execute(env=environment)


def freeze(notebook: NotebookNode, name: str) -> None:
    """Leave only what is the same at the next build."""
    for index, cell in enumerate(notebook.cells):
        cell["id"] = f"{name}-{index:02d}"
        kept = {key: cell.metadata[key] for key in ("tags", "nbgrader") if cell.metadata.get(key)}
        cell["metadata"] = NotebookNode(kept)
        if cell.cell_type != "code":
            continue
        if "local" in kept.get("tags", ()):
            cell["outputs"] = []
        for output in cell.outputs:
            if output.output_type == "stream":
                output["text"] = ADDRESS.sub("", output.text)
            for kind in DROPPED:
                output.get("data", {}).pop(kind, None)
            if "text/plain" in output.get("data", {}):
                output.data["text/plain"] = ADDRESS.sub("", output.data["text/plain"])
        cell["outputs"] = [each for each in cell.outputs if each.get("data", True)]
    notebook["metadata"] = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
        minibatch={"matplotlib": importlib.metadata.version("matplotlib")},
    )
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5


def check(path: Path, notebook: NotebookNode) -> list[str]:
    """Say whether a fresh notebook equals the committed one; returns what drifted."""
    if not path.exists():
        return [f"{path.name} is missing"]
    committed = nbformat.read(path, as_version=4)
    built_with, here = (each.metadata.get("minibatch", {}).get("matplotlib") for each in (committed, notebook))
    if built_with != here:
        print(f"{path.stem}: pictures not compared (built with matplotlib {built_with}, this is {here})")
    return list(drift(committed, notebook))


def drift(old: NotebookNode, new: NotebookNode) -> Iterator[str]:
    """What differs between the committed notebook and a fresh one, cell by cell."""
    if [(c.cell_type, c.source) for c in old.cells] != [(c.cell_type, c.source) for c in new.cells]:
        yield "the source was changed and the notebook not built again"
        return
    if [(c.id, c.metadata) for c in old.cells] != [(c.id, c.metadata) for c in new.cells]:
        yield "cell ids or tags differ"
    if "widgets" in old.metadata:
        yield "widget state is stored in it"
    pictures = old.metadata.get("minibatch") == new.metadata.minibatch
    for before, after in zip(old.cells, new.cells):
        if before.cell_type != "code":
            continue
        if before.execution_count != after.execution_count:
            yield f"{before.id}: execution count {before.execution_count} -> {after.execution_count}"
        kinds = [each.output_type for each in before.outputs], [each.output_type for each in after.outputs]
        if kinds[0] != kinds[1]:
            yield f"{before.id}: outputs {kinds[0]} -> {kinds[1]}"
            continue
        for one, other in zip(before.outputs, after.outputs):
            yield from (f"{before.id}: {what}" for what in _output_drift(one, other, pictures))


def _output_drift(one: NotebookNode, other: NotebookNode, pictures: bool) -> Iterator[str]:
    if (one.get("name"), one.get("text")) != (other.get("name"), other.get("text")):
        yield f"printed {_short(one.get('text'))} -> {_short(other.get('text'))}"
    if one.get("metadata", {}) != other.get("metadata", {}):
        yield "output metadata (alt text) differs"
    before, after = one.get("data", {}), other.get("data", {})
    for kind in sorted(before.keys() | after.keys()):
        old, new = before.get(kind), after.get(kind)
        if kind == "image/png" and old and new:
            if pictures and (what := _pixel_drift(old, new)):
                yield what
        elif old != new:
            yield f"{kind} differs: {_short(old)} -> {_short(new)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:299] + "…"


def _pixel_drift(old: str, new: str) -> str | None:
    before, after = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(each))).convert("RGB"), int) for each in (old, new)
    )
    if before.shape != after.shape:
        return f"picture of {before.shape[1]} x {before.shape[0]} -> {after.shape[1]} x {after.shape[0]} pixels"
    changed = int((abs(before - after).max(axis=2) > SAME_PIXEL).sum())
    return f"picture differs in {changed} pixels" if changed else None
