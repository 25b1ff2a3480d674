"""Compute the committed figures and the numbers behind them anew, and write them or compare them."""

import argparse
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from minibatch.commands.five_ways import five_ways
from minibatch.commands.three_schedulers import three_schedulers
from minibatch.headlines import HEADLINES, store
from minibatch.headlines.base import Headline
from minibatch.headlines.claims import claims_page
from minibatch.plot.output import png
from minibatch.simulate.cards import known

DRAWN = {"three_schedulers": three_schedulers, "player": five_ways}  # without numbers of their own: a picture, a page
CLAIMS = "claims"  # the table of the articles' claims, from all headlines: claims.md
MOST_SHOWN = 5  # differences of one figure


class Built(NamedTuple):
    """A figure as it comes out now: a picture, or the page of a player."""

    name: str
    headline: Headline | None
    image: bytes
    suffix: str = ".png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `figures`."""
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(_names())} (default: all)")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; compare, and end with 1 if any has drifted"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--folder", type=Path, default=Path("figures"), help="of the pictures (default figures)")


def run(arguments: argparse.Namespace) -> int:
    """Build, then write or compare. Ends with 1 if something drifted."""
    names = _chosen(arguments.names)
    jobs = arguments.jobs if arguments.jobs is not None else os.cpu_count() or 1
    if jobs < 1:
        raise ValueError(f"--jobs {jobs}: must be at least 1")
    if not arguments.folder.is_dir():
        raise ValueError(f"--folder {arguments.folder}: no such folder; run this in the repository")
    figures = [name for name in names if name != CLAIMS]
    built = list(tqdm(_all(figures, jobs), total=len(figures), unit="figure"))
    built.sort(key=lambda one: figures.index(one.name))
    return _compare(arguments.folder, names, built) if arguments.check else _write(arguments.folder, names, built)


def build(name: str) -> Built:
    """One figure, computed and drawn."""
    if name in DRAWN:
        drawn = DRAWN[name]()
        if isinstance(drawn, str):
            return Built(name, None, drawn.encode(), ".html")
        return Built(name, None, png(drawn, dpi=160))
    compute, draw = HEADLINES[name]
    headline = compute()
    return Built(name, headline, png(draw(headline), dpi=110))


def _names() -> list[str]:
    return [*HEADLINES, *DRAWN, CLAIMS]


def _chosen(names: list[str]) -> list[str]:
    table = {name: name for name in _names()}
    return list(dict.fromkeys(known("figure", name, table) for name in names)) or list(table)


def _all(names: list[str], jobs: int) -> Iterator[Built]:
    """Each as it is ready, in as many processes as asked for."""
    if jobs == 1 or len(names) < 2:
        yield from map(build, names)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(build, name) for name in names]):
            yield future.result()


def _write(folder: Path, names: list[str], built: Iterable[Built]) -> int:
    for one in built:
        path = folder / f"{one.name}{one.suffix}"
        path.write_bytes(one.image)
        print(path)
    found = {one.name: one.headline for one in built if one.headline}
    if found:
        store.write(found)
        print(store.PATH)
    if CLAIMS in names:
        path = folder / "claims.md"
        path.write_text(claims_page(store.read()), "utf-8")
        print(path)
    return 0


def _compare(folder: Path, names: list[str], built: list[Built]) -> int:
    drifted = [line for one in built for line in _drift(folder, one)]
    if CLAIMS in names:
        now = store.read() | {one.name: one.headline for one in built if one.headline}
        path = folder / "claims.md"
        if not path.exists() or path.read_text("utf-8") != claims_page(now):
            drifted.append(f"{path}: no longer says what the headlines do")
    print(*drifted, sep="\n", end="\n" if drifted else "")
    print(f"{len(drifted)} differences; write with python -m minibatch figures" if drifted else "nothing drifted")
    return 1 if drifted else 0


def _drift(folder: Path, one: Built) -> list[str]:
    """What differs between a figure as it is now and as it is committed: its numbers, else its picture."""
    path = folder / f"{one.name}{one.suffix}"
    if one.headline:
        committed = store.read_plain()["headlines"].get(one.name)
        found = list(store.differences(committed, store.as_plain(one.headline)))
        if found:
            more = [f"{path}: and {len(found) - MOST_SHOWN} more"] if len(found) > MOST_SHOWN else []
            return [f"{path}: {words}" for words in found[:MOST_SHOWN]] + more
    if not path.exists():
        return [f"{path}: not there"]
    if path.read_bytes() == one.image:
        return []
    if one.suffix == ".html":
        return [f"{path}: the page differs"]
    return [f"{path}: the picture differs, its numbers do not{_drawn_with()}"]


def _drawn_with() -> str:
    """Another matplotlib draws other pixels."""
    here, committed = f"matplotlib {version('matplotlib')}", store.read_plain()["drawn_with"]
    return f" (committed: {committed}; here: {here})" if committed and committed != here else ""
