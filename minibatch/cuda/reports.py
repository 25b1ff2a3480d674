"""What the checker found, each mistake once, with its source line and in words.

The records come from the layer in simt/ (simt_api.h says what they hold); `str(report)` is made for the screen.
"""

from dataclasses import dataclass, replace

import numpy as np

from minibatch.cuda.lines import NOWHERE, Place
from minibatch.cuda.sentences import KINDS, Sentences
from minibatch.cuda.simulated import Run


@dataclass(frozen=True)
class Report:
    """One mistake. `kind` is one of KINDS; `kernel` the name given to the launch; `count` how often it happened."""

    kind: str
    kernel: str
    place: Place
    sentence: str
    count: int = 1
    other_place: Place = NOWHERE  # of a race, and of a divergent barrier or warp function
    array: str = ""

    def __str__(self) -> str:
        at = f" at {self.place}" if self.place.line else ""
        source = f"\n    {self.place.line} | {self.place.source}" if self.place.source else ""
        times = f" ({self.count:,} times in all)" if self.count > 1 else ""
        return f"{self.kind}{at}, kernel {self.kernel}{source}\n  {self.sentence}{times}"


def reports(run: Run) -> list[Report]:
    """The reports of a run in the order found. Those of the same kind, lines and array are one, counted together."""
    words = Sentences(run)
    found: dict[tuple, Report] = {}
    for record in run.reports:
        report = _report(words, record)
        if report.kind == "waiting":  # these describe the deadlock before them
            key = next(reversed(found))
            found[key] = replace(found[key], sentence=f"{found[key].sentence}\n    {report.sentence}")
            continue
        key = (report.kind, report.kernel, report.array, frozenset({report.place, report.other_place}))
        earlier = found.get(key)
        found[key] = replace(earlier, count=earlier.count + report.count) if earlier else report
    return list(found.values())


def describe(run: Run) -> str:
    """All reports of a run as text, for an error message."""
    found = reports(run)
    heading = "1 mistake" if len(found) == 1 else f"{len(found)} mistakes"
    return "\n\n".join([f"{heading} found by the checker", *map(str, found)])


def _report(words: Sentences, record: np.void) -> Report:
    place = words.places.get(int(record["pc"]), NOWHERE)
    if record["line"]:  # from the compiler itself, which knows better than the debug information
        place = Place(record["other_name"].decode(), int(record["line"]), place.callers)
    return Report(
        KINDS[record["kind"] - 1],
        words.launch(record)["name"].decode(),
        place,
        words.of(record),
        int(record["count"]),
        words.places.get(int(record["other_pc"]), NOWHERE),
        words.array(record) if record["array"] >= 0 else "",
    )
