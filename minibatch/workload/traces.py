"""Public traces of real services, and yours in the same form: lengths and times, no text.

What each is and whose, with its licence: data/NOTICE.md.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from minibatch.workload.check import check_known, is_finite, is_whole
from minibatch.workload.planned import Planned

AZURE_TRACES = {"conv": "AzureLLMInferenceTrace_conv.csv.gz", "code": "AzureLLMInferenceTrace_code.csv.gz"}
MOONCAKE_FILE = "mooncake_conversation_first3000.jsonl.gz"
MOONCAKE_BLOCK = 512  # tokens of a prompt that one hash id stands for

_AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
_SHOWN = 100  # characters of a bad row in an error


class _Row(NamedTuple):
    """A line of a file, read and not yet judged."""

    microseconds: int
    prompt_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()


def azure_trace(name: str) -> list[Planned]:
    """A whole Azure LLM inference trace of 2023: "conv" (19,366 requests) or "code" (8,819), about an hour each.

    Arrivals in seconds from the first request. Real lengths and times, no text. Patel et al., "Splitwise", ISCA
    2024, CC-BY 4.0: see data/NOTICE.md.
    """
    return _azure(_data(check_known(name, AZURE_TRACES, "trace")))


def mooncake_trace() -> list[Planned]:
    """The first 3,000 requests of Mooncake's conversation trace, 16 minutes, with the `hash_ids` of their prompts.

    Arrivals in seconds, in groups every 3 s. Prompts are long (13,517 tokens on average), and 31 % of their blocks
    were seen before. Qin et al., "Mooncake", FAST 2025, Apache-2.0: see data/NOTICE.md.
    """
    return _mooncake(_data(MOONCAKE_FILE))


def read_azure(path: str | Path) -> list[Planned]:
    """A trace of your own in the form of Azure's: CSV (it may be gzipped), one request a row, in order of time.

        TIMESTAMP,ContextTokens,GeneratedTokens
        2023-11-16 18:15:46.680590,374,44

    Decimals beyond the sixth and a time zone are dropped. Arrivals come out in seconds from the first request. Raises
    ValueError, with file and line, for a row that is not a time and two numbers of tokens, that has no tokens, or
    that comes before the one above it.
    """
    return _azure(Path(path))


def read_mooncake(path: str | Path) -> list[Planned]:
    """A trace of your own in the form of Mooncake's: JSON lines (they may be gzipped), in order of time.

        {"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}

    Times in milliseconds, a hash id for each 512 tokens of the prompt that were begun. Raises ValueError, with file
    and line, for a row that is not this.
    """
    return _mooncake(Path(path))


def _azure(file: Path) -> list[Planned]:
    header, *rows = _lines(file) or [""]
    if header != _AZURE_HEADER:
        raise ValueError(f"{file.name}, line 1: the header is {header[:_SHOWN]!r}, not {_AZURE_HEADER!r}")
    return _planned(rows, 2, file.name, _azure_row, "a time and two numbers of tokens")


def _mooncake(file: Path) -> list[Planned]:
    return _planned(_lines(file), 1, file.name, _mooncake_row, "a request of Mooncake's trace")


def _azure_row(row: str) -> _Row:
    stamp, prompt_tokens, output_tokens = row.split(",")
    time = datetime.fromisoformat(stamp[:26]).replace(tzinfo=None)  # the published times have seven decimals
    return _Row((time - datetime.min) // timedelta(microseconds=1), int(prompt_tokens), int(output_tokens))


def _mooncake_row(row: str) -> _Row:
    entry = json.loads(row)
    if not isinstance(entry, dict):
        raise ValueError("not an object")
    time, prompt, output, ids = (entry.get(key) for key in ("timestamp", "input_length", "output_length", "hash_ids"))
    if not (is_finite(time) and is_whole(prompt) and is_whole(output)):
        raise ValueError("timestamp, input_length and output_length must be numbers")
    if not isinstance(ids, list) or not all(map(is_whole, ids)) or len(ids) != -(-prompt // MOONCAKE_BLOCK):
        raise ValueError(f"hash_ids must be a number for each {MOONCAKE_BLOCK} tokens begun")
    return _Row(round(1000 * time), prompt, output, tuple(ids))


def _planned(rows: Iterable[str], first: int, file: str, parse: Callable[[str], _Row], what: str) -> list[Planned]:
    """All rows as planned requests; the first one arrives at 0. `first` is the number of the first line."""
    planned: list[Planned] = []
    start = before = None
    for line, text in enumerate(rows, first):
        try:
            row = parse(text)
        except ValueError as error:
            raise ValueError(f"{file}, line {line}: {text[:_SHOWN]!r} is not {what}: {error}") from error
        if before is None:
            start = before = row.microseconds
        if min(row.prompt_tokens, row.output_tokens) < 1 or row.microseconds < before:
            why = "has no tokens, or comes before the line above it"
            raise ValueError(f"{file}, line {line}: {text[:_SHOWN]!r} {why}")
        before = row.microseconds
        planned.append(Planned((before - start) / 1e6, *row[1:]))
    return planned


def _lines(file: Path) -> list[str]:
    data = file.read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    return data.decode("utf-8-sig", errors="replace").splitlines()  # what is no text is no row, and refused as such


def _data(file: str) -> Path:
    return files("minibatch").joinpath("data", file)
