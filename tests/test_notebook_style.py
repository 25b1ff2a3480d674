"""What a reader of the committed notebooks sees without running anything. No kernel, under a second."""

import ast
import re
from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
NAMES = sorted(path.stem for path in (FOLDER / "source").glob("*.py"))
MOST_KB = 200
ABSOLUTE = re.compile(r"(?<![\w.:/])/(home|tmp|root|Users|work|usr|opt|var)/|[A-Z]:\\\\")


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def notebook(name):
    path = FOLDER / f"{name}.ipynb"
    if not path.exists():
        pytest.fail(f"not built: python notebooks/build.py {name}", pytrace=False)
    return nbformat.read(path, as_version=4)


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(notebook) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def test_sources_and_notebooks_belong_together():
    assert NAMES and NAMES == sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def test_built_from_its_present_source(name, notebook):
    source = jupytext.read(FOLDER / "source" / f"{name}.py")
    assert [cell.source for cell in notebook.cells] == [cell.source for cell in source.cells], (
        f"run: python notebooks/build.py {name}"
    )


def test_first_cell_says_what_where_and_how_long(name, notebook):
    first = notebook.cells[0]
    number = name.split("_")[0]
    assert first.cell_type == "markdown" and first.source.startswith(f"# {number} ")
    assert re.search(r"^About \d+ minutes\. ", first.source, re.M)
    assert "No GPU needed." in first.source
    uses_model = 'load_model("smollm2")' in "\n".join(cell.source for cell in code_cells(notebook))
    assert ("Needs SmolLM2" in first.source) == uses_model
    assert "Previous: [" in first.source and "Next: " in first.source
    assert "\nArticles: " in first.source and "(GLOSSARY.md)" in first.source
    place = NAMES.index(name)
    for neighbour in NAMES[max(place - 1, 0) : place] + NAMES[place + 1 : place + 2]:
        assert f"({neighbour}.ipynb)" in first.source


def test_links_lead_somewhere(notebook):
    for target in re.findall(r"\]\(([^)#\s]+)\)", text_of(notebook)):
        assert target.startswith("https://") or (FOLDER / target).exists(), target


def test_imports_stand_in_the_first_code_cell(notebook):
    for cell in code_cells(notebook)[1:]:
        nodes = ast.walk(ast.parse(cell.source))
        assert not any(isinstance(node, (ast.Import, ast.ImportFrom)) for node in nodes), cell.source


def test_one_clean_run_from_top_to_bottom(notebook):
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type != "error" and output.get("name") != "stderr", f"{cell.id}: {output}"
        if "local" in cell.metadata.get("tags", []):
            assert not cell.outputs, f"{cell.id}: what it measured belongs to one machine"


def test_frozen(name, notebook):
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata, "widget state makes GitHub refuse the page"
    assert notebook.metadata.minibatch.matplotlib
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MOST_KB * 1024
    for cell in code_cells(notebook):
        for output in cell.outputs:
            data = output.get("data", {})
            assert "application/vnd.jupyter.widget-view+json" not in data, cell.id
            assert "image/svg+xml" not in data, f"{cell.id}: an untrusted notebook hides SVG; use PNG"
            assert not re.search(r" at 0x[0-9a-f]{6}", str(output)), cell.id


def test_no_path_of_one_machine(notebook):
    for cell in notebook.cells:
        for text in [cell.source, *(str(output) for output in cell.get("outputs", []))]:
            assert not ABSOLUTE.search(text), f"{cell.id}: {ABSOLUTE.search(text)}"


def test_pictures_have_alt_text(notebook):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                words = output.metadata.get("image/png", {}).get("alt", "")
                assert len(words) > 30, f"{cell.id}: show(fig, alt) says in words what the picture shows"
                assert output.data["text/plain"] == words, f"{cell.id}: JupyterLab reads the alt text from text/plain"


def test_questions_exercises_and_where_to_read_on(notebook):
    text = text_of(notebook)
    assert text.count("Predict, then run") >= 2
    assert text.count("<details>") == text.count("</details>") >= 2
    assert "## What you saw" in text and "## Exercises" in text
    code = "\n".join(cell.source for cell in code_cells(notebook))
    checked = set(re.findall(r"^attempt\((check_\w+)", code, re.M))
    assert len(checked) >= 3, checked
    last = notebook.cells[-1]
    assert last.cell_type == "markdown"
    assert re.match(r"## Where to read this in .+ and friends\n", last.source) and "vLLM" in last.source
