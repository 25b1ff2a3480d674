"""Records of the checker, one sentence a kind. See simt/simt_api.h for the records and reports.py for the rest."""

from collections.abc import Callable
from math import prod

import numpy as np

from minibatch.cuda.lines import NOWHERE, places
from minibatch.cuda.simulated import Run

KINDS = (  # by number, from 1
    "uninitialised read",
    "out of bounds",
    "write to a read-only array",
    "misaligned access",
    "array index",
    "race",
    "divergent barrier",
    "barrier after return",
    "divergent warp function",
    "lane not in its mask",
    "source lane",
    "deadlock",
    "waiting",
    "stack",
    "endless loop",
    "assertion",
    "launch refused",
)
VERBS = ("reads", "writes", "updates")  # by operation; the last is an atomic


class Sentences:
    """Turns the records of a run into sentences: a method a kind, named after it."""

    def __init__(self, run: Run):
        self.run = run
        self.places = places(run.library, {*run.reports["pc"].tolist(), *run.reports["other_pc"].tolist()} - {0})

    def of(self, record: np.void) -> str:
        kind = KINDS[record["kind"] - 1]
        sentence: Callable[[np.void], str] = getattr(self, "_" + kind.replace(" ", "_").replace("-", "_"))
        return sentence(record)

    def array(self, record: np.void) -> str:
        array = self.run.arrays[record["array"]]
        return f"{'__shared__ ' if array['shared'] else ''}{array['name'].decode()}"

    def launch(self, record: np.void) -> np.void:
        return self.run.launches[record["launch"]]

    # --- sentences, one for each of KINDS

    def _uninitialised_read(self, record: np.void) -> str:
        if self.run.arrays[record["array"]]["shared"]:
            never = "which no thread of the block has written. Is a barrier missing before this line?"
        else:
            never = "which was never written."
        return f"{self._who(record)} reads {self._element(record)}, {never}"

    def _out_of_bounds(self, record: np.void) -> str:
        return f"{self._who(record)} {_verb(record)} {_bytes(record['size'])} {self._outside(record)}. Stopped in time."

    def _write_to_a_read_only_array(self, record: np.void) -> str:
        return f"{self._who(record)} {_verb(record)} {self._element(record)}, an input. Stopped in time."

    def _misaligned_access(self, record: np.void) -> str:
        size = int(record["size"])
        return (
            f"{self._who(record)} {_verb(record)} {_bytes(size)} at byte {int(record['offset'])} of "
            f"{self.array(record)}: the address is no multiple of {size}, which a GPU refuses. Stopped in time."
        )

    def _array_index(self, record: np.void) -> str:
        type_ = _text(record["name"]).strip("'").replace(" [", "[")
        return f"{self._who(record)} uses index {int(record['offset'])} in a {type_}. Stopped in time."

    def _race(self, record: np.void) -> str:
        same_block = record["block"] == record["other_block"]
        other = self._thread(record["other_thread"], record) if same_block else self._who(record, "other_")
        verb = ("read it", "wrote it", "updated it")[record["other_operation"]]
        why = (
            "and no barrier lies between the two."
            if same_block
            else "and nothing orders two blocks of a launch: give each block its own elements, or use an atomic."
        )
        where = self.places.get(int(record["other_pc"]), NOWHERE)
        return f"{self._who(record)} {_verb(record)} {self._element(record)}; {other} {verb} at {where}, {why}"

    def _divergent_barrier(self, record: np.void) -> str:
        there = self.places.get(int(record["other_pc"]), NOWHERE)
        return (
            f"{self._who(record)} waits in this __syncthreads(), {self._thread(record['other_thread'], record)} in the "
            f"one at {there}: all threads of a block must come to the same barrier."
        )

    def _barrier_after_return(self, record: np.void) -> str:
        return (
            f"{self._who(record)} waits in this __syncthreads(), but {self._thread(record['other_thread'], record)} "
            "has returned: all threads of a block must come to the barrier."
        )

    def _divergent_warp_function(self, record: np.void) -> str:
        there = self.places.get(int(record["other_pc"]), NOWHERE)
        return (
            f"{self._who(record)} is in {_text(record['name'])} with mask {int(record['mask']):#010x}, "
            f"lane {int(record['other_thread']) % 32} of its warp in {_text(record['other_name'])} at {there}: "
            "all lanes of a mask must call the same function with the same mask."
        )

    def _lane_not_in_its_mask(self, record: np.void) -> str:
        name, mask = _text(record["name"]), int(record["mask"])
        return f"{self._who(record)} calls {name} with mask {mask:#010x}, which leaves out the lane itself."

    def _source_lane(self, record: np.void) -> str:
        name, mask = _text(record["name"]), int(record["mask"])
        return (
            f"{self._who(record)} reads lane {int(record['other_thread']) % 32} in {name} with mask {mask:#010x}, but "
            "that lane is not in the mask or has returned: its value is undefined."
        )

    def _deadlock(self, record: np.void) -> str:
        return f"No thread of block {self._block(record)} can go on:"

    def _waiting(self, record: np.void) -> str:
        first, last = int(record["thread"]), int(record["other_thread"])
        threads = f"thread {first}" if first == last else f"threads {first} to {last}"
        if not record["name"]:
            return f"{threads}: returned"
        mask = f" with mask {int(record['mask']):#010x}" if record["mask"] else ""
        where = self.places.get(int(record["pc"]), NOWHERE)
        return f"{threads}: in {_text(record['name'])}{mask} at {where}"

    def _stack(self, record: np.void) -> str:
        if record["size"]:
            return f"{self._who(record)} {_verb(record)} a local variable of another thread. Stopped in time."
        return f"{self._who(record)} has local arrays larger than the emulated stack of 128 KiB. Stopped."

    def _endless_loop(self, record: np.void) -> str:
        return (
            f"{self._who(record)} made {int(record['count']):,} accesses without coming to an end or to a barrier. "
            "Threads take turns here, so one that spins until another writes waits for ever. Stopped."
        )

    def _assertion(self, record: np.void) -> str:
        return f"{self._who(record)}: assert({_text(record['name'])}) failed. Stopped."

    def _launch_refused(self, record: np.void) -> str:
        launch = self.launch(record)
        grid, block = (tuple(map(int, launch[name])) for name in ("grid", "block"))
        return f"{_text(record['name'])}: grid {_triple(grid)}, block {_triple(block)}."

    # --- names of things

    def _block(self, record: np.void, which: str = "") -> str:
        return _triple(_unravel(int(record[which + "block"]), self.launch(record)["grid"]))

    def _thread(self, thread: int, record: np.void) -> str:
        index = _unravel(int(thread), self.launch(record)["block"])
        return f"thread {_triple(index)} [warp {thread // 32}, lane {thread % 32}]"

    def _who(self, record: np.void, which: str = "") -> str:
        return f"{self._thread(record[which + 'thread'], record)} of block {self._block(record, which)}"

    def _element(self, record: np.void) -> str:
        """`out[3]`, or `k[2, 0, 1, 5]` where the shape is known. Of shared memory only the size of the access is."""
        array, offset = self.run.arrays[record["array"]], int(record["offset"])
        element = int(array["element_bytes"]) or min(int(record["size"]), 4)
        if offset % element:
            return f"byte {offset} of {self.array(record)}"
        shape = self.run.shapes.get(array["name"].decode())
        index = offset // element
        if shape and not array["shared"] and index < prod(shape):
            return f"{self.array(record)}[{', '.join(str(int(i)) for i in np.unravel_index(index, shape))}]"
        return f"{self.array(record)}[{index}]"

    def _outside(self, record: np.void) -> str:
        if record["array"] < 0 or abs(int(record["offset"])) > 1 << 40:
            return "at an address that belongs to no array"
        array, offset = self.run.arrays[record["array"]], int(record["offset"])
        size = int(array["element_bytes"])
        length = f"{int(array['bytes']) // size} elements" if size else f"{int(array['bytes'])} bytes"
        name = f"{self.array(record)} ({length})"
        if offset < 0:
            return f"{_bytes(-offset)} before {name}"
        beyond = offset - int(array["bytes"])
        return f"{_bytes(beyond)} past the end of {name}" if beyond > 0 else f"at the end of {name}, and beyond it"


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _verb(record: np.void) -> str:
    return VERBS[record["operation"]]


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _triple(index: tuple[int, ...]) -> str:
    return "({},{},{})".format(*index)


def _unravel(linear: int, dim: np.ndarray) -> tuple[int, int, int]:
    """CUDA counts x first."""
    x, y, _ = map(int, dim)
    return linear % x, linear // x % y, linear // (x * y)
