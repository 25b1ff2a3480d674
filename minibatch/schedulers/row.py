"""A row of the table of systems: its words for the four axes, its knobs, and how to build a scheduler from them."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from types import SimpleNamespace

from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.schedulers.base import Scheduler


@dataclass(frozen=True)
class Knob:
    """One setting: our name, that system's own, its default there as of the row's source, and what to know of it."""

    name: str
    theirs: str
    default: object
    note: str = ""


@dataclass(frozen=True)
class Pool:
    """The memory that a system is to use: K/V positions in all, and the most that one request may have."""

    num_positions: int
    max_model_len: int
    events: bool

    def paged(
        self,
        block_size: int,
        prefix_cache: bool | str = False,
        kind: str = "hash",
        host_blocks: int | None = None,
    ) -> PagedMemory:
        """Blocks, as many as fit. A `prefix_cache` of True is one of that system's kind."""
        cache = kind if prefix_cache is True else prefix_cache
        if block_size > self.num_positions:
            raise ValueError(f"num_positions={self.num_positions!r}: not even one block of {block_size} fits")
        return PagedMemory(self.num_positions // block_size, block_size, cache, host_blocks, self.events)

    def contiguous(self, reserve: str, placement: str = "first_fit") -> ContiguousMemory:
        """Regions."""
        return ContiguousMemory(self.num_positions, self.max_model_len, reserve, placement)

    def regions(self) -> int:
        """How many regions of max_model_len there are."""
        if self.max_model_len > self.num_positions:
            raise ValueError(
                f"num_positions={self.num_positions!r}: not even one request of max_model_len={self.max_model_len} fits"
            )
        return self.num_positions // self.max_model_len


def given(value: object, otherwise: object) -> object:
    """The value of a knob, if it has one."""
    return otherwise if value is None else value


@dataclass(frozen=True)
class System:
    """One real system. `join`, `mix`, `reserve` and `evict` say in words what `make` composes."""

    name: str
    label: str
    join: str
    mix: str
    reserve: str
    evict: str
    knobs: tuple[Knob, ...]
    as_of: str
    source: str
    make: Callable[[Pool, SimpleNamespace], Scheduler]
    note: str = ""  # where ours differs from it

    def build(self, num_positions: int, max_model_len: int, events: bool = True, **knobs: object) -> Scheduler:
        """A scheduler with memory for `num_positions` K/V positions, of which a request may have `max_model_len`.

        Knobs go by our names; those not given have their defaults. `events=False` keeps no record of single blocks.
        Raises ValueError for an unknown knob and for a value that makes no sense.
        """
        for field, value in {"num_positions": num_positions, "max_model_len": max_model_len}.items():
            if value < 1:
                raise ValueError(f"{field}={value!r}: must be at least 1")
        for name in knobs:
            self._check_known(name)
        chosen = SimpleNamespace(**{knob.name: knobs.get(knob.name, knob.default) for knob in self.knobs})
        scheduler = self.make(Pool(num_positions, max_model_len, events), chosen)
        scheduler.name = self.name
        return scheduler

    def _check_known(self, name: str) -> None:
        names = [knob.name for knob in self.knobs]
        if name in names:
            return
        flag = name.strip("-").replace("-", "_").lower()
        ours = [knob.name for knob in self.knobs if flag in knob.theirs.replace("-", "_").lower()]
        near = ours[:1] or get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"{name!r} is no knob of {self.name!r}{hint} Its knobs: {', '.join(names)}")
