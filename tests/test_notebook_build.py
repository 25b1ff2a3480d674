"""notebooks/frozen.py without a kernel: what freezing takes away, and what counts as drift."""

import base64
import copy
import io

import frozen as frozen_by
import pytest
from nbformat import v4
from PIL import Image


def png(dot: int = 255) -> str:
    """A white picture with one pixel of this grey."""
    image, stream = Image.new("RGB", (20, 10), "white"), io.BytesIO()
    image.putpixel((3, 4), (dot, dot, dot))
    image.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


@pytest.fixture
def frozen():
    """A notebook with everything that must not be committed, frozen."""
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1f"}}
    cells = [
        v4.new_markdown_cell("# 00 Title"),
        v4.new_code_cell("print(object())", outputs=[v4.new_output("stream", text="<object at 0x7f00aa>\n5\n")]),
        v4.new_code_cell("player", outputs=[v4.new_output("display_data", view | {"image/png": png()})]),
        v4.new_code_cell("slider", outputs=[v4.new_output("display_data", dict(view))]),
        v4.new_code_cell("measure()", outputs=[v4.new_output("stream", text="3.1 ms\n")], metadata={"tags": ["local"]}),
        v4.new_code_cell("f", outputs=[v4.new_output("execute_result", {"text/plain": "<function f at 0x7f00bb>"})]),
    ]
    cells[1].metadata["execution"] = {"iopub.status.busy": "10:00"}
    notebook = v4.new_notebook(cells=cells, metadata={"widgets": {"state": {}}})
    frozen_by.freeze(notebook, "00_start")
    return notebook


def test_freezing_leaves_what_repeats(frozen):
    _, printed, player, slider, measured, function = frozen.cells
    assert printed.outputs[0].text == "<object>\n5\n" and printed.metadata == {}
    assert list(player.outputs[0].data) == ["image/png"] and slider.outputs == []
    assert measured.outputs == [] and measured.metadata == {"tags": ["local"]}
    assert function.outputs[0].data == {"text/plain": "<function f>"}
    assert [cell.id for cell in frozen.cells][:2] == ["00_start-00", "00_start-01"]
    assert "widgets" not in frozen.metadata and frozen.metadata["minibatch"]["matplotlib"]


def test_the_same_notebook_has_not_drifted(frozen):
    assert list(frozen_by.drift(frozen, copy.deepcopy(frozen))) == []


def changed(notebook, change):
    other = copy.deepcopy(notebook)
    change(other)
    return list(frozen_by.drift(notebook, other))


def test_every_change_is_drift(frozen):
    def text(other):
        other.cells[1].outputs[0].text = "<object>\n6\n"

    def source(other):
        other.cells[0].source = "# 00 Other title"

    def dot(other):
        other.cells[2].outputs[0].data["image/png"] = png(100)

    def words(other):
        other.cells[2].outputs[0].metadata = {"image/png": {"alt": "another"}}

    def missing(other):
        other.cells[5].outputs = []

    for change, word in [
        (text, "printed"),
        (source, "source was changed"),
        (dot, "1 pixels"),
        (words, "alt text"),
        (missing, "outputs"),
    ]:
        (found,) = changed(frozen, change)
        assert word in found


def test_noise_of_a_few_levels_is_not_drift(frozen):
    def dot(other):
        other.cells[2].outputs[0].data["image/png"] = png(250)

    assert changed(frozen, dot) == []


def test_pictures_of_another_matplotlib_are_not_compared(frozen):
    frozen.metadata["minibatch"] = {"matplotlib": "0.1"}
    here = copy.deepcopy(frozen)
    here.metadata["minibatch"] = {"matplotlib": "0.2"}
    here.cells[2].outputs[0].data["image/png"] = png(0)
    assert list(frozen_by.drift(frozen, here)) == []
