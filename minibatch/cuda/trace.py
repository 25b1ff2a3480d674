"""What a kernel asked of memory: the accesses of a traced run, put together to the requests of its warps.

The hardware serves the 32 lanes of a warp at once. A load from global memory moves whole sectors of 32 bytes; shared
memory has 32 banks, each four bytes wide, and hands out one word a bank in a pass. (CUDA C++ Programming Guide,
"Device Memory Accesses" and "Shared Memory".) What a trace does not know: caches, and the order in which a GPU would
run warps. The k-th time each lane of a warp comes by an instruction counts as one request, which is what happens while
the lanes stay together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minibatch.cuda.lines import Place, places
from minibatch.cuda.simulated import Run

SECTOR = 32  # bytes: the smallest piece that moves between a GPU's memory and its caches
BANKS, WORD = 32, 4  # of shared memory: how many, and the bytes each hands out in a pass
OPERATIONS = ("read", "write", "atomic")

REQUEST = np.dtype(
    [(name, "i8") for name in "launch block warp pc array operation size lanes useful sectors passes".split()]
)


def requests(run: Run) -> np.ndarray:
    """One record (REQUEST) for each instruction of each warp, in the order of execution.

    `lanes` took part; `useful` distinct bytes were asked for; for global memory `sectors` were moved, for shared memory
    it took `passes` (1 for each 128 bytes without bank conflict); the other of the two is 0. Arrays are taken to begin
    at a sector and at bank 0. Raises ValueError for a run without trace.
    """
    accesses = _accesses(run)
    ids, first = _requests_of(accesses)
    made = np.zeros(len(first), REQUEST)
    for name in ("launch", "block", "pc", "array", "operation", "size"):
        made[name] = accesses[name][first]
    made["warp"] = accesses["thread"][first] // 32
    made["lanes"] = np.bincount(ids, minlength=len(first))
    _, distinct = _group(ids, accesses["offset"], accesses["size"])
    made["useful"] = np.bincount(ids[distinct], weights=accesses["size"][distinct], minlength=len(first))
    shared = _is_shared(run, made["array"])
    made["sectors"] = np.where(shared, 0, _sectors(ids, accesses, len(first)))
    made["passes"] = np.where(shared, _passes(ids, accesses, len(first)), 0)
    return made[np.argsort(first)]


def visits_of(run: Run, number: int) -> np.ndarray:
    """The accesses, as the trace has them, of the `number`-th of `requests(run)`."""
    accesses = _accesses(run)
    ids, first = _requests_of(accesses)
    return accesses[ids == np.argsort(first)[number]]


@dataclass(frozen=True)
class LineUse:
    """What one line of a kernel did to one array, `size` bytes a lane. Means are over its requests."""

    place: Place
    operation: str
    array: str
    shared: bool
    size: int
    requests: int
    lanes: float  # mean
    sectors: float  # mean, of global memory
    useful: float  # share of the bytes moved that was asked for, of global memory
    passes: float  # mean, of shared memory

    @property
    def conflict(self) -> float:
        """How many times the passes that the same bytes take without bank conflict; 1 is best. 0 for global memory."""
        return self.passes / max(1, self.size * self.lanes / (BANKS * WORD)) if self.shared else 0.0


def by_line(run: Run) -> list[LineUse]:
    """The requests of a run by source line, operation, array and size, in the order of the kernel's source."""
    made = requests(run)
    where = places(run.library, made["pc"])
    known = list(dict.fromkeys(where.values()))
    line = np.array([known.index(where[pc]) for pc in made["pc"].tolist()], dtype=int)
    ids, first = _group(line, made["operation"], made["array"], made["size"])
    uses = [_line_use(run, known[line[at]], made[ids == group]) for group, at in enumerate(first)]
    return sorted(uses, key=lambda use: (use.place.order, use.array, use.operation))


def table(run: Run) -> str:
    """`by_line` as text, a row a line."""
    names = f"{'bytes':>5}{'requests':>10}{'lanes':>7}{'sectors':>9}{'useful':>8}{'passes':>8}"
    rows = [f"{'line':44}{'':7}{'array':20}{names}"]
    for use in by_line(run):
        array = f"__shared__ {use.array}" if use.shared else use.array
        cost = f"{'':17}{use.passes:8.1f}" if use.shared else f"{use.sectors:9.1f}{use.useful:8.0%}"
        start = f"{_clipped(str(use.place), 43):44}{use.operation:7}{_clipped(array, 19):20}{use.size:5}"
        rows.append(f"{start}{use.requests:10,}{use.lanes:7.1f}{cost}")
    return "\n".join(rows)


@dataclass(frozen=True)
class Traffic:
    """Bytes that reads of some arrays moved, in sectors: each request by itself, and with each block of threads
    counted once for a sector, as if its first-level cache never forgot."""

    requests: int
    request_bytes: int
    block_bytes: int


def traffic(run: Run, arrays: Sequence[str]) -> Traffic:
    """What reading these arrays of global memory cost. Divide by the bytes there are to read for "times the ideal"."""
    accesses = _reads(run, arrays)
    ids, first = _requests_of(accesses)
    blocks, _ = _group(accesses["launch"], accesses["block"])
    both = np.concatenate([ids, ids]), np.concatenate([blocks, blocks])
    array, sector = np.tile(accesses["array"], 2), _both_ends(accesses)
    by_request = len(_group(both[0], array, sector)[1])
    by_block = len(_group(both[1], array, sector)[1])
    return Traffic(len(first), by_request * SECTOR, by_block * SECTOR)


def readers(run: Run, array: str, block_bytes: int) -> np.ndarray:
    """Which CUDA block read which block of a K/V cache: distinct bytes, [K/V blocks, CUDA blocks of the launch].

    `block_bytes` is the size of a K/V block in `array`. The launch is the first that reads the array; CUDA blocks are
    numbered as in the grid, x first.
    """
    accesses = _reads(run, [array])
    accesses = accesses[accesses["launch"] == accesses["launch"][0]]
    grid = run.launches[accesses["launch"][0]]["grid"]
    info = run.arrays[accesses["array"][0]]
    seen = np.zeros((-(-int(info["bytes"]) // block_bytes), int(np.prod(grid))), dtype=np.int64)
    _, distinct = _group(accesses["block"], accesses["offset"], accesses["size"])
    kept = accesses[distinct]
    np.add.at(seen, (kept["offset"] // block_bytes, kept["block"]), kept["size"])
    return seen


def _accesses(run: Run) -> np.ndarray:
    if len(run.accesses) == 0:
        raise ValueError("run has no trace: run a checked library with trace_limit above 0")
    if run.dropped:
        raise ValueError(f"run.dropped={run.dropped}: the trace is not whole, raise trace_limit={run.trace_limit}")
    return run.accesses


def _reads(run: Run, arrays: Sequence[str]) -> np.ndarray:
    accesses = _accesses(run)
    names = [name.decode() for name in run.arrays["name"]]
    for name in arrays:
        if name not in names:
            raise ValueError(f"array={name!r}: the run knows {', '.join(names)}")
    kept = accesses[np.isin(accesses["array"], [names.index(name) for name in arrays]) & (accesses["operation"] == 0)]
    if len(kept) == 0:
        raise ValueError(f"arrays={list(arrays)!r}: not read in this run")
    return kept


def _requests_of(accesses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The request each access belongs to, and the first access of each request."""
    launch, block, thread, pc = (accesses[name] for name in ("launch", "block", "thread", "pc"))
    visits, _ = _group(launch, block, thread, pc)
    order = np.argsort(visits, kind="stable")
    start = np.searchsorted(visits[order], visits[order])
    occurrence = np.empty(len(accesses), dtype=np.int64)
    occurrence[order] = np.arange(len(accesses)) - start
    return _group(launch, block, thread // 32, pc, accesses["array"], occurrence)


def _sectors(ids: np.ndarray, accesses: np.ndarray, count: int) -> np.ndarray:
    twice = np.concatenate([ids, ids])
    _, distinct = _group(twice, _both_ends(accesses))
    return np.bincount(twice[distinct], minlength=count)


def _both_ends(accesses: np.ndarray) -> np.ndarray:
    """The sectors of first and last byte: an access of at most 16 bytes touches no third."""
    return np.concatenate([accesses["offset"], accesses["offset"] + accesses["size"] - 1]) // SECTOR


def _passes(ids: np.ndarray, accesses: np.ndarray, count: int) -> np.ndarray:
    """In a pass each bank hands out one word. Wide accesses go by half warps (8 bytes) or quarter warps (16 bytes)."""
    words = -(-accesses["size"].astype(np.int64) // WORD)
    member = np.repeat(np.arange(len(accesses)), words)
    word = accesses["offset"][member] // WORD + np.arange(len(member)) - np.repeat(np.cumsum(words) - words, words)
    part = (accesses["thread"] % 32 * words // 32)[member]
    request = ids[member]
    _, distinct = _group(request, part, word)
    request, part, bank = request[distinct], part[distinct], word[distinct] % BANKS
    same_bank, first = _group(request, part, bank)
    parts, part_first = _group(request[first], part[first])
    longest = np.zeros(len(part_first), dtype=np.int64)
    np.maximum.at(longest, parts, np.bincount(same_bank))
    return np.bincount(request[first][part_first], weights=longest, minlength=count).astype(np.int64)


def _group(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct rows of `columns` in sorted order: each row's number, and the first row with each number."""
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), dtype=bool)
    new[:1] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.cumsum(new) - 1
    return numbers, order[new]


def _is_shared(run: Run, arrays: np.ndarray) -> np.ndarray:
    return run.arrays["shared"].astype(bool)[arrays]


def _line_use(run: Run, place: Place, made: np.ndarray) -> LineUse:
    one, info = made[0], run.arrays[made[0]["array"]]
    moved = int(made["sectors"].sum()) * SECTOR
    return LineUse(
        place,
        OPERATIONS[one["operation"]],
        info["name"].decode(),
        bool(info["shared"]),
        int(one["size"]),
        len(made),
        float(made["lanes"].mean()),
        float(made["sectors"].mean()),
        int(made["useful"].sum()) / moved if moved else 0.0,
        float(made["passes"].mean()),
    )


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
