"""For the checks of lab 4: a reader's block allocator, played through stories of operations and looked at after each.

Beside the allocator stand the K/V values that its owners wrote, one number a position. They go where its tables say,
so a mistake shows as what it is in a real engine: somebody reads what another one wrote. Nothing is looked at but the
public side: `table(name)`, `num_free`, `take_copies()` and what the operations return or raise.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import NamedTuple

from minibatch.checks.base import CheckFailed, NotYet, need

MOST = 150  # characters of a story that stand in a message


class OutOfBlocks(Exception):
    """Fewer blocks are free than an operation needs. It has changed nothing."""


class Due(NamedTuple):
    """What an operation does to the books of a right allocator, and the rule by which it does."""

    taken: int  # free blocks
    copies: int
    rule: str


def audit(allocator: object, lengths: dict[str, int]) -> None:
    """Raise CheckFailed in words if the tables of an allocator are not those of sequences of so many tokens."""
    size, held = allocator.block_size, set()
    for name, tokens in lengths.items():
        table = allocator.table(name)
        real = all(isinstance(block, Integral) and 0 <= block < allocator.num_blocks for block in table)
        need(real, f"{name} has {list(table)} for a table; blocks are numbered 0 to {allocator.num_blocks - 1}")
        need(len(set(table)) == len(table), f"{name} has a block twice in its table {list(table)}")
        held.update(table)
        room = len(table) * size
        said = f"{name} has {tokens} token{'s'[: tokens != 1]} and {len(table)} block{'s'[: len(table) != 1]} of {size}"
        need(tokens <= room, f"{said}: one that is only partly full is needed all the same")
        many = f"a block holds {size} of them" if len(table) == tokens else "there is one that holds none of them"
        need(room - tokens < size, f"{said}: {many}")
    free = allocator.num_free
    said = f"{len(held)} of the {allocator.num_blocks} blocks stand in tables, and num_free is {free}"
    need(len(held) + free >= allocator.num_blocks, f"{said}: a block is lost, in no table and not free")
    need(len(held) + free <= allocator.num_blocks, f"{said}: a block is free and in somebody's table")


class Play:
    """One allocator from its start. Raises CheckFailed at the first operation after which something is wrong.

    An operation is ("allocate", name, tokens), ("append", name), ("fork", parent, child, tokens) or ("free", name).
    `copy` says when a fork's last block is copied: "on_write" or "at_fork".
    """

    def __init__(self, answer: Callable, num_blocks: int, block_size: int, copy: str = "on_write"):
        self.size, self.copy, self.story = block_size, copy, []
        self.told = f"{num_blocks} blocks of {block_size}"
        self.allocator = self._ask(lambda: answer(num_blocks, block_size))
        self.wrote: dict[str, list[int]] = {}  # name -> the value that it wrote at each of its positions
        self.memory: dict[tuple[int, int], int] = {}  # (block, offset) -> the value that lies there
        self.tables: dict[str, list[int]] = {}
        self.num_free, self._values = num_blocks, 0

    def run(self, *story: tuple) -> "Play":
        """All operations, one after the other."""
        for operation in story:
            self.do(*operation)
        return self

    def do(self, kind: str, *args: object) -> None:
        """One operation, and a look at everything."""
        self.story.append((kind, *args))
        if not self.makes_sense(kind, *args):
            self._must_refuse(kind, *args)
            return
        due, refused = self._due(kind, *args), False
        short = due.taken > self.num_free
        hint = "; too few blocks are free for it: raise OutOfBlocks before anything changes" if short else ""
        try:
            place = self._ask(lambda: getattr(self.allocator, kind)(*args), OutOfBlocks, hint)
        except OutOfBlocks:
            refused = True
        free = f"free blocks: {self.num_free}"
        self._need(short or not refused, f"raised OutOfBlocks; {free}, and {due.rule}")
        self._need(refused or not short, f"too few blocks are free, and nothing was raised; {free}, and {due.rule}")
        if refused:
            self._unchanged(kind, *args)
            return
        self._wrote(kind, *args)
        self._look(kind, args, place, due)

    def makes_sense(self, kind: str, name: str, *rest: object) -> bool:
        """False for a name that is there and should not be, or the other way round."""
        there = name in self.wrote
        if kind == "fork":
            return there and rest[0] not in self.wrote and rest[1] <= len(self.wrote[name])
        return there is (kind != "allocate")

    # ---- what is right ----

    def _due(self, kind: str, name: str, *rest: object) -> Due:
        table, holders = self.tables.get(name, []), Counter(block for each in self.tables.values() for block in each)
        if kind == "allocate":
            return Due(-(-rest[0] // self.size), 0, "each block holds as many tokens as it has positions")
        if kind == "free":
            return Due(0, 0, "to give back needs no block and no copy")
        if kind == "fork":
            if self.copy == "at_fork" and rest[1] % self.size:
                return Due(1, 1, "here a block that the child fills only in part is copied at once")
            if rest[1] % self.size:
                return Due(0, 0, "here a fork takes and copies nothing; that is for the first who writes")
            return Due(0, 0, "the child's blocks are full, so they are shared")
        place = len(self.wrote[name]) // self.size
        if place == len(table):
            return Due(1, 0, "all its blocks are full, so the token needs a new one and no copy")
        if holders[table[place]] > 1:
            return Due(1, 1, "the token falls into a block that others hold, so the writer needs a copy of it first")
        return Due(0, 0, "the token falls into a block that has room and that nobody else holds")

    def _wrote(self, kind: str, name: str, *rest: object) -> None:
        if kind == "free":
            del self.wrote[name]
        elif kind == "fork":
            self.wrote[rest[0]] = self.wrote[name][: rest[1]]
        else:
            count = rest[0] if kind == "allocate" else 1
            self.wrote.setdefault(name, []).extend(range(self._values, self._values + count))
            self._values += count

    # ---- what is there ----

    def _look(self, kind: str, args: tuple, place: object, due: Due) -> None:
        changed = args[1] if kind == "fork" else args[0]
        tables = self._tables_now()
        for other in self.tables.keys() - {changed}:
            self._need(tables[other] == self.tables[other], f"the table of {other} changed too; does it share a list?")
        copies = self._copies()
        if kind == "append":
            self._check_place(changed, tables[changed], place)
        lengths = {name: len(values) for name, values in self.wrote.items()}
        self._ask(lambda: audit(self.allocator, lengths))
        if kind in ("append", "allocate"):
            self._write(changed, tables[changed], 1 if kind == "append" else args[1])
        self._read_back(tables)
        self._need(copies == due.copies, f"copies asked for: {copies}; {due.rule}")
        self.tables, self.num_free = tables, self.allocator.num_free

    def _copies(self) -> int:
        """Do what the allocator asks of whoever holds the tensors."""
        copies = self._ask(lambda: [(source, target) for source, target in self.allocator.take_copies()])
        for source, target in copies:
            for offset in range(self.size):
                self.memory[target, offset] = self.memory.get((source, offset), -1)
        return len(copies)

    def _check_place(self, name: str, table: list[int], place: object) -> None:
        position = len(self.wrote[name]) - 1
        pair = isinstance(place, (tuple, list)) and len(place) == 2
        self._need(pair, f"returned {place!r}; (block, offset) of the new token is wanted")
        self._need(position // self.size < len(table), f"position {position} has no block in the table {table}")
        right = tuple(place) == (table[position // self.size], position % self.size)
        self._need(right, f"returned {tuple(place)}, and by the table {table} position {position} lies elsewhere")

    def _write(self, name: str, table: list[int], count: int) -> None:
        values = self.wrote[name]
        for position in range(len(values) - count, len(values)):
            self.memory[table[position // self.size], position % self.size] = values[position]

    def _read_back(self, tables: dict[str, list[int]]) -> None:
        """Everybody finds what it wrote: nothing is lost, and nobody sees a stranger's."""
        author = {value: name for name, values in reversed(self.wrote.items()) for value in values}
        for name, values in self.wrote.items():
            for position, value in enumerate(values):
                read = self.memory.get((tables[name][position // self.size], position % self.size), -1)
                found = f"what {author[read]} wrote" if read in author else "what nobody here wrote"
                found = f"{found} at another position" if author.get(read) == name else found
                self._need(read == value, f"position {position} of {name} now reads {found}")

    def _must_refuse(self, kind: str, *args: object) -> None:
        refused = False
        try:
            self._ask(lambda: getattr(self.allocator, kind)(*args), Exception)
        except CheckFailed:
            raise  # the stub
        except Exception:
            refused = True
        twice = next((name for name in args[:2] if kind != "free" and name in self.wrote), None)
        what = f"{args[0]} holds nothing" if twice is None else f"{args[kind == 'fork']} has a table already"
        self._need(refused, f"{what}, and no error was raised")
        self._unchanged(kind, *args)

    def _unchanged(self, kind: str, *args: object) -> None:
        """After a refusal everything is as before."""
        if kind in ("allocate", "fork"):
            newcomer = args[0] if kind == "allocate" else args[1]
            there = newcomer not in self.tables and self._table(newcomer)
            self._need(not there, f"it was refused, and {newcomer} has a table all the same")
        free = self._ask(lambda: self.allocator.num_free)
        same = self._tables_now() == self.tables and free == self.num_free
        went = f"num_free went from {self.num_free} to {free}"
        self._need(same, f"it was refused, and yet something changed ({went}): look before you take")
        self._need(not self._copies(), "it was refused, and yet it asks for a copy")

    def _table(self, name: str) -> list[int] | None:
        try:
            return list(self.allocator.table(name))
        except Exception:
            return None

    def _tables_now(self) -> dict[str, list[int]]:
        tables = {name: self._table(name) for name in self.wrote}
        for name, table in tables.items():
            self._need(table is not None, f"{name} should have a table, and table({name!r}) gives none")
        return tables

    # ---- words ----

    def _ask(self, action: Callable[[], object], passing: type[Exception] = (), hint: str = "") -> object:
        """What an action of the reader's code returns; whatever it raises becomes one line."""
        try:
            return action()
        except NotImplementedError:
            raise NotYet(f"{self._where()}: not written yet") from None
        except CheckFailed as failed:
            raise CheckFailed(f"{self._where()}: {failed}") from None
        except passing:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:80]
            raise CheckFailed(f"{self._where()}: raised {type(error).__name__}: {text}{hint}") from None

    def _need(self, condition: bool, fault: str) -> None:
        if not condition:
            raise CheckFailed(f"{self._where()}: {fault}")

    def _where(self) -> str:
        return f"{self.told}: {told(self.story)}" if self.story else self.told


def told(story: Iterable[tuple]) -> str:
    """A story as its reader would call it; of a long one the end."""
    calls = [f"{kind}({', '.join(map(repr, args))})".replace("'", '"') for kind, *args in story]
    while len(", ".join(calls)) > MOST:
        calls = ["…", *calls[2 if calls[0] == "…" else 1 :]]
    return ", ".join(calls)
