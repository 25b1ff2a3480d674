"""The README keeps its promises: what it links is there, and CI runs its own test command."""

import json
import re
from pathlib import Path

from minibatch.headlines import committed

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 5
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_both_commands_stand_within_the_first_20_lines_and_ci_runs_the_second():
    head = "\n".join(README.splitlines()[:20])
    commands = re.findall(r"```bash\n(.+)\n```", head)
    assert len(commands) == 2
    assert commands[0].endswith("python -m minibatch compare") and commands[1].endswith("python -m pytest")
    assert commands[1] in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_the_table_names_every_notebook_and_its_minutes():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        row = next(line for line in README.splitlines() if line.startswith(f"| [{path.stem}]"))
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        assert f"| {re.search(r'About ([0-9]+) minutes', first)[1]} |" in row


def test_the_example_runs(tiny, capsys):
    code = re.search(r"```python\n(.+?)```", README, re.S)[1]
    exec(compile(code, "README.md", "exec"), {})
    assert "1 2 3 4 5 6 7" in capsys.readouterr().out


def test_the_gains_it_quotes_are_the_computed_ones():
    totals = [row["total"] for row in committed("decomposition").rows]
    assert f"{totals[0]:.1f}, {totals[1]:.1f}, {totals[2]:.1f} and {totals[3]:.1f} times" in README
