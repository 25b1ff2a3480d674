"""notebooks/labs/TEACHING.md: its links lead somewhere, its minutes, points and checks are those of the files."""

import json
import re
from pathlib import Path

import pytest

LABS = Path(__file__).resolve().parents[1] / "notebooks" / "labs"
GUIDE = (LABS / "TEACHING.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in GUIDE.splitlines() if line.startswith("| [")]


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def row_of(path: str) -> list[str]:
    return next(row for row in ROWS if f"({path})" in row[0])


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", GUIDE)
    assert len(links) > 15
    assert [link for link in links if "://" not in link and not (LABS / link).exists()] == []


@pytest.mark.parametrize("path", sorted(LABS.glob("lab*.ipynb")), ids=lambda path: path.stem)
def test_a_labs_minutes_points_and_checks(path):
    _, minutes, points_and_checks, *_ = row_of(path.name)
    first, *rest = cells(path)
    said = "".join(first["source"]).replace("About an hour.", "About 60 minutes.")
    graded = [cell for cell in rest if cell["metadata"].get("nbgrader", {}).get("grade")]
    assert f"About {minutes} minutes." in said
    assert points_and_checks == f"{sum(cell['metadata']['nbgrader']['points'] for cell in graded)}, {len(graded)}"


@pytest.mark.parametrize("path", sorted(LABS.parent.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebooks_minutes_and_its_wrong_turns(path):
    minutes, runs_in = row_of(f"../{path.name}")[1:3]
    assert f"About {minutes} minutes." in "".join(cells(path)[0]["source"])
    assert re.fullmatch(r"\d+ s", runs_in)
    assert f"\n**{path.stem[:2]}.** " in GUIDE
