"""Headlines as plain JSON: what `python -m minibatch figures` commits with the package, and compares."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from minibatch.headlines.base import Finding, Headline

CLOSE = 1e-9  # of itself: numbers nearer than this are the same
PATH = Path(__file__).parents[1] / "data" / "headlines.json"


def as_plain(headline: Headline) -> dict:
    """What JSON can hold of it, as it would come back from there."""
    return json.loads(json.dumps(asdict(headline)))


def from_plain(plain: Mapping) -> Headline:
    """The headline that `as_plain` was given; ranges come back as tuples."""
    findings = tuple(
        Finding(
            **one | {"published": tuple(one["published"]) if isinstance(one["published"], list) else one["published"]}
        )
        for one in plain["findings"]
    )
    return Headline(plain["name"], plain["question"], tuple(plain["rows"]), findings, plain["sentence"])


def read() -> dict[str, Headline]:
    """The committed headlines by name."""
    return {name: from_plain(one) for name, one in read_plain()["headlines"].items()}


def read_plain() -> dict:
    """The file as it stands; nothing in it where there is none yet."""
    return json.loads(PATH.read_text("utf-8")) if PATH.exists() else {"drawn_with": "", "headlines": {}}


def write(headlines: Mapping[str, Headline]) -> None:
    """Put these headlines in the place of those of the same name, and note what draws the pictures."""
    kept = read_plain()["headlines"] | {name: as_plain(one) for name, one in headlines.items()}
    whole = {"drawn_with": f"matplotlib {version('matplotlib')}", "headlines": dict(sorted(kept.items()))}
    PATH.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")


def differences(committed: object, now: object, where: str = "") -> Iterator[str]:
    """Each place in which two plain values differ, in words; numbers up to a billionth of themselves are the same."""
    if isinstance(committed, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*committed, *now]):
            yield from differences(committed.get(key), now.get(key), f"{where}.{key}" if where else key)
    elif isinstance(committed, list) and isinstance(now, list) and len(committed) == len(now):
        for place, (before, after) in enumerate(zip(committed, now)):
            yield from differences(before, after, f"{where}[{place}]")
    elif not _same(committed, now):
        yield f"{where}: {_short(committed)} committed, {_short(now)} now"


def _same(committed: object, now: object) -> bool:
    numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (committed, now))
    return math.isclose(committed, now, rel_tol=CLOSE) if numbers else committed == now


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else f"{text[:57]}..."
