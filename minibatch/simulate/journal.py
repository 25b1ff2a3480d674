"""What a sweep has found so far, on disk: a run that was interrupted goes on where it stopped. Notebook 09."""

import json
from pathlib import Path

from minibatch.simulate.objective import Objective
from minibatch.simulate.rows import COLUMNS, key, labels
from minibatch.simulate.scenario import Scenario


class Journal:
    """Rows found so far: in memory and, given a path, a JSON object a line in a file, in the order in which they came.

    A line that was cut off when a run was killed is dropped. Raises ValueError, with file and line, for a file that is
    something else.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = Path(path) if path else None
        self._rows: dict[tuple, dict] = {}
        if self.path and self.path.exists():
            self._load(self.path.read_bytes())

    def find(self, scenario: Scenario, slo: Objective) -> dict | None:
        """The row of a scenario under these targets, if it is known."""
        return self._rows.get(key(labels(scenario, slo)))

    def add(self, row: dict) -> None:
        """Keep it. One with an error is not kept: what it came of may have passed."""
        if row["error"]:
            return
        self._rows[key(row)] = row
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def _load(self, text: bytes) -> None:
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            self.path.write_bytes(whole)
        for number, line in enumerate(whole.splitlines(), 1):
            row = _parsed(line)
            if not isinstance(row, dict) or tuple(row) != COLUMNS:
                raise ValueError(f"{self.path}, line {number}: is no row of a sweep of today; choose another file")
            self._rows[key(row)] = row


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
