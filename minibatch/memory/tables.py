"""One entry more in a block table, or one less: what every operation on paged memory is made of.

Introduced in notebook 06 as a part of `PagedMemory`.
"""

from minibatch.memory.blocks import BlockPool
from minibatch.memory.prefix import PrefixIndex
from minibatch.memory.radix import RadixTree
from minibatch.request import Sequence
from minibatch.step import MemoryEvent, Move

PREFIX_CACHES: dict[str, type[PrefixIndex]] = {"hash": PrefixIndex, "radix": RadixTree}


class BlockTables:
    """The pool, the prefix index and the two logs, kept in step with the block tables of all sequences."""

    def __init__(self, num_blocks: int, prefix_cache: bool | str, events: bool):
        if not isinstance(prefix_cache, bool) and prefix_cache not in PREFIX_CACHES:
            raise ValueError(f"prefix_cache={prefix_cache!r}: choose one of {', '.join(PREFIX_CACHES)}, or False")
        self.pool = BlockPool(num_blocks)
        self.index = PREFIX_CACHES["hash" if prefix_cache is True else prefix_cache]() if prefix_cache else None
        self.moves: list[Move] = []
        self.events: list[MemoryEvent] = []
        self._keeps_events = events
        self._entries = 0  # in all block tables together

    @property
    def prefix_cache(self) -> bool:
        """True if stored prefixes are shared."""
        return self.index is not None

    def take_moves(self) -> tuple[Move, ...]:
        """What the executor must do with the tensors before the next step; told once."""
        moves, self.moves = tuple(self.moves), []
        return moves

    def take_events(self) -> tuple[MemoryEvent, ...]:
        """What happened to the books since the last time this was asked."""
        events, self.events = tuple(self.events), []
        return events

    def _take(self, sequence: Sequence, count: int) -> None:
        for _ in range(count):
            block = self.pool.take()
            if self.index is not None:
                self.index.forget(block)
            self._enter(sequence, block, "take")

    def _share(self, sequence: Sequence, block: int) -> None:
        self.pool.share(block)
        self._enter(sequence, block, "share")

    def _enter(self, sequence: Sequence, block: int, kind: str) -> None:
        sequence.block_table.append(block)
        self._entries += 1
        if self._keeps_events:
            self.events.append(MemoryEvent(kind, sequence.request_id, block))

    def _give_back(self, sequence: Sequence, block: int) -> None:
        self.pool.give_back(block)
        self._entries -= 1
        if self.index is not None and block not in self.pool.owners:
            self.index.freed(block, self.pool)
        if self._keeps_events:
            self.events.append(MemoryEvent("give", sequence.request_id, block))
