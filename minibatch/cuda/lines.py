"""From an address in a built library to the lines of source it came from, by addr2line of binutils."""

import linecache
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
NOT_THE_KERNEL = (HERE / "simt", HERE / "gpu.h")  # what every kernel goes through


class Place(NamedTuple):
    """A line of a kernel, and the calls it was inlined by: the lines of its callers, innermost first."""

    path: str
    line: int
    callers: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """`file.cuh:12, called from file.cuh:30`."""
        if not self.line:
            return "an unknown line"
        calls = "".join(f", called from {Path(path).name}:{line}" for path, line in self.callers)
        return f"{Path(self.path).name}:{self.line}{calls}"

    @property
    def order(self) -> tuple[tuple[str, int], ...]:
        """Sorts places as the kernel comes by: by its own line, then by those of what it calls there."""
        frames = (*self.callers[::-1], (self.path, self.line))
        return tuple((Path(path).name, line) for path, line in frames)

    @property
    def source(self) -> str:
        """The line as written, without indentation; empty if the file is not here."""
        return linecache.getline(self.path, self.line).strip() if self.line else ""


NOWHERE = Place("", 0)


def places(library: Path, addresses: Iterable[int]) -> dict[int, Place]:
    """The place of each address, an offset in `library` as the layer in simt/ gives it: the one after a call.

    Raises RuntimeError where addr2line is missing.
    """
    wanted = sorted(set(map(int, addresses)))
    if not wanted:
        return {}
    program = shutil.which("addr2line")
    if program is None:
        raise RuntimeError("addr2line not found on PATH: install binutils to have the checker name source lines")
    command = [program, "-a", "-i", "-e", str(library)]
    asked = "\n".join(hex(max(address - 1, 0)) for address in wanted)  # the call, not what comes after it
    said = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout
    answers = [answer.splitlines()[1:] for answer in ("\n" + said).split("\n0x")[1:]]
    return {address: _place(frames) for address, frames in zip(wanted, answers)}


def _place(frames: list[str]) -> Place:
    """One answer of addr2line, innermost frame first, as `/path/file.cuh:12` or `... (discriminator 3)` or `??:0`."""
    kept = []
    for frame in frames:
        path, _, line = frame.split(" (")[0].rpartition(":")
        if line.isdigit() and int(line) and not _in_the_layer(Path(path)):
            kept.append((path, int(line)))
    return Place(*kept[0], tuple(kept[1:])) if kept else NOWHERE


def _in_the_layer(path: Path) -> bool:
    return any(part == path or part in path.parents for part in NOT_THE_KERNEL) or path.is_relative_to("/usr")
