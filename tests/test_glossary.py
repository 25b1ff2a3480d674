"""notebooks/GLOSSARY.md: every name in it exists, in the file that it links to, and so does every notebook."""

import importlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
LINES = (FOLDER / "GLOSSARY.md").read_text(encoding="utf-8").splitlines()
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in LINES if line.startswith("| ")]
WORDS = [row for row in ROWS if row[0] != "word"]


def resolve(name: str):
    """The object behind a dotted name, and the module it is found in."""
    module, _, rest = name, "", ""
    attributes: list[str] = []
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, rest = module.rpartition(".")
            attributes.insert(0, rest)
    for attribute in attributes:
        found = found.__dict__.get(attribute) or getattr(found, attribute)
    return found


@pytest.mark.parametrize("row", WORDS, ids=[row[0] for row in WORDS])
def test_a_row_is_whole_and_its_name_lives_where_it_says(row):
    word, _, meaning, code, notebooks = row
    name, path = re.fullmatch(r"\[`([\w.]+)`\]\(([\w./]+)\)", code).groups()
    assert len(meaning) > 20 and resolve(name) is not None
    text = (FOLDER / path).read_text(encoding="utf-8")
    last = name.rpartition(".")[2]
    assert path.endswith((f"{last}.py", "README.md")) or re.search(rf"\b{last}\b", text), f"{name} is not in {path}"
    for number in notebooks.split(", "):
        assert list((FOLDER / "source").glob(f"{number}_*.py")), number


def test_each_word_once_and_in_all_four_parts():
    names = [row[0] for row in WORDS]
    assert len(names) == len(set(names)) >= 45
    assert sum(line.startswith("## ") for line in LINES) == 4
