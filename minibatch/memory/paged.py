"""The paged KV cache's books: a block table for each sequence, grown a block at a time. Introduced in notebook 06.

Source: PagedAttention (Kwon et al., SOSP 2023, section 4); article 1, "a memória virou o palco".
"""

from collections import Counter
from dataclasses import dataclass

from minibatch.memory.blocks import BlockPool
from minibatch.memory.host import HostBlocks
from minibatch.memory.prefix import PrefixIndex
from minibatch.request import Request, Sequence
from minibatch.step import MemoryEvent, Move
from minibatch.trace import MemoryUse


@dataclass(slots=True)
class _Holding:
    """What is known of one sequence's blocks beyond its block table."""

    published: int = 0  # its first so many blocks are in the prefix index, or another's copy of them is
    node: int = PrefixIndex.ROOT  # the chain they form
    may_share_tail: bool = False  # it was forked: a block it is about to write may have another owner
    shared_tokens: int = 0  # of a fork that has not written yet: tokens stored in the blocks it shares


class PagedMemory:
    """`num_blocks` blocks of `block_size` K/V positions, and who holds which.

    A sequence's `block_table` lists its blocks in order: position p lies in block_table[p // block_size]. Every
    operation gives all that was asked for or changes nothing. `prefix_cache` lets a newcomer start with blocks
    that hold its first tokens already; `host_blocks` is the room for swapped-out sequences (None: no swapping).
    """

    def __init__(
        self, num_blocks: int, block_size: int = 16, prefix_cache: bool = False, host_blocks: int | None = None
    ):
        if block_size < 1:
            raise ValueError(f"block_size={block_size!r}: must be at least 1")
        if host_blocks is not None and host_blocks < 0:
            raise ValueError(f"host_blocks={host_blocks!r}: must be 0 or more, or None for no swapping")
        self.pool = BlockPool(num_blocks)
        self.num_blocks, self.block_size, self.host_blocks = num_blocks, block_size, host_blocks
        self.num_positions = self.max_model_len = num_blocks * block_size
        self.index = PrefixIndex() if prefix_cache else None
        self.moves: list[Move] = []
        self.events: list[MemoryEvent] = []
        self._holders: dict[Sequence, _Holding] = {}
        self._host = HostBlocks(host_blocks or 0)
        self.hit_tokens = self.asked_tokens = 0  # of the prefix cache, since the start

    @property
    def prefix_cache(self) -> bool:
        """True if stored prefixes are shared."""
        return self.index is not None

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def refusal(self, request: Request) -> str | None:
        """Why this request can never fit, even alone, with need and capacity in blocks; None if it can."""
        need = self.blocks_for(request.kv_need)
        if need <= self.num_blocks:
            return None
        return f"needs {need} blocks of {self.block_size} K/V positions, the whole pool has {self.num_blocks}"

    # ---- coming in, growing, leaving ----

    def admit(self, sequence: Sequence, num_tokens: int | None = None, keep_free: int = 0) -> bool:
        """Blocks for the first `num_tokens` tokens of a sequence that holds none (default: for its whole need).

        Reuses what it can: its own K and V in host memory, those of the sequence it is forked from, or a stored
        prefix; `sequence.num_computed_tokens` says afterwards how far that reaches. False, and nothing changed,
        unless `keep_free` blocks stay free.
        """
        if sequence in self._holders:
            raise ValueError(f"request {sequence.request_id!r} holds blocks already")
        blocks, spare = self.blocks_for(num_tokens or sequence.request.kv_need), self.pool.num_free - keep_free
        if sequence in self._host.places:
            return blocks <= spare and self._swap_in(sequence, blocks)
        if self._can_fork(sequence):
            shared = self.blocks_for(len(sequence.request.prompt))
            if blocks - shared + 1 > spare:  # one more: the last shared block is written at once, so copied
                return False
            self.fork(sequence.parent, sequence)
            return self.grow(sequence, blocks * self.block_size)
        found, node = self._find(sequence)
        revived = sum(block not in self.pool.owners for block in found)  # free now, not once they are shared
        if blocks - len(found) + revived > spare:
            return False
        for block in found:
            self._share(sequence, block)
        self._holders[sequence] = _Holding(published=len(found), node=node)
        sequence.num_computed_tokens = len(found) * self.block_size
        self.hit_tokens += sequence.num_computed_tokens
        self.asked_tokens += sequence.num_tokens
        self._take(sequence, blocks - len(found))
        return True

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Room to store all tokens up to `num_tokens`; False, and nothing changed, where there is none.

        A block with more than one owner is never written: the writer gets a copy of it first (copy-on-write).
        """
        table, holding = sequence.block_table, self._holders[sequence]
        if num_tokens <= len(table) * self.block_size and not holding.may_share_tail:
            return True
        missing = max(0, self.blocks_for(num_tokens) - len(table))
        tail = sequence.num_computed_tokens // self.block_size  # the place of the next block to be written
        shared = holding.may_share_tail and tail < len(table) and self.pool.owners[table[tail]] > 1
        if missing + shared > self.pool.num_free:
            return False
        if shared:
            self._copy_on_write(sequence, tail)
        holding.may_share_tail, holding.shared_tokens = False, 0
        self._take(sequence, missing)
        return True

    def commit(self, sequence: Sequence) -> None:
        """Publish the blocks whose K and V have now all been computed.

        Not a step earlier: until then a block holds another's values, or noise, and nobody may find it.
        """
        if self.index is None:
            return
        holding, size = self._holders[sequence], self.block_size
        while (holding.published + 1) * size <= sequence.num_computed_tokens:
            block = sequence.block_table[holding.published]
            tokens = sequence.tokens(holding.published * size, size)
            holding.node = self.index.publish(holding.node, tokens, block)
            holding.published += 1

    def release(self, sequence: Sequence) -> None:
        """Give everything back, the tail first: the end of a chain is of use to fewer than its beginning."""
        if sequence in self._host.places:
            self._host.give_back(sequence)
            return
        if sequence not in self._holders:
            raise ValueError(f"request {sequence.request_id!r} holds no blocks to release")
        self._leave(sequence)

    def _leave(self, sequence: Sequence) -> None:
        del self._holders[sequence]
        for block in reversed(sequence.block_table):
            self._give_back(sequence, block)
        sequence.block_table = []

    def holds(self, sequence: Sequence) -> bool:
        """True if it has blocks here or in host memory."""
        return sequence in self._holders or sequence in self._host.places

    # ---- sharing ----

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let `child`, which has the same prompt and holds nothing, share the parent's blocks of that prompt.

        Takes no block. The child is to compute the prompt's last token again, to draw its own first token.
        """
        prompt = len(child.request.prompt)
        if parent.num_computed_tokens < prompt:
            raise ValueError(f"request {parent.request_id!r} has not computed its whole prompt yet")
        for block in parent.block_table[: self.blocks_for(prompt)]:
            self._share(child, block)
        child.num_computed_tokens = prompt - 1
        self._holders[parent].may_share_tail = True
        self._holders[child] = _Holding(may_share_tail=True, shared_tokens=prompt)

    def _can_fork(self, sequence: Sequence) -> bool:
        parent, fresh = sequence.parent, not sequence.output
        return fresh and parent in self._holders and parent.num_computed_tokens >= len(sequence.request.prompt)

    def _find(self, sequence: Sequence) -> tuple[list[int], int]:
        """Stored blocks of the sequence's first tokens: whole ones, and never the last token.

        That one has to be computed even if its K and V are known, for the next token is drawn from its output.
        """
        if self.index is None:
            return [], PrefixIndex.ROOT
        size, whole = self.block_size, (sequence.num_tokens - 1) // self.block_size
        return self.index.find(sequence.tokens(place * size, size) for place in range(whole))

    def _copy_on_write(self, sequence: Sequence, place: int) -> None:
        table = sequence.block_table
        shared, rest = table[place], table[place + 1 :]
        del table[place:]
        self._take(sequence, 1)
        self.moves.append(Move("copy", shared, table[place]))
        self._give_back(sequence, shared)
        table += rest

    # ---- swapping ----

    def swap_out(self, sequence: Sequence) -> bool:
        """Move what a sequence has stored to host memory and give its blocks back; False if there is no room."""
        stored = sequence.block_table[: self.blocks_for(sequence.num_computed_tokens)]
        places = self._host.take(sequence, len(stored)) if stored else None
        if places is None:
            return False
        self.moves += [Move("out", block, place) for block, place in zip(stored, places)]
        self._leave(sequence)
        return True

    def _swap_in(self, sequence: Sequence, blocks: int) -> bool:
        self._holders[sequence] = _Holding()
        self._take(sequence, blocks)
        places = self._host.give_back(sequence)
        self.moves += [Move("in", place, block) for place, block in zip(places, sequence.block_table)]
        return True

    # ---- single blocks ----

    def _take(self, sequence: Sequence, count: int) -> None:
        for _ in range(count):
            block = self.pool.take()
            if self.index is not None:
                self.index.forget(block)
            sequence.block_table.append(block)
            self.events.append(MemoryEvent("take", sequence.request_id, block))

    def _share(self, sequence: Sequence, block: int) -> None:
        self.pool.share(block)
        sequence.block_table.append(block)
        self.events.append(MemoryEvent("share", sequence.request_id, block))

    def _give_back(self, sequence: Sequence, block: int) -> None:
        self.pool.give_back(block)
        self.events.append(MemoryEvent("give", sequence.request_id, block))

    # ---- looking ----

    def take_moves(self) -> tuple[Move, ...]:
        """What the executor must do with the tensors before the next step; told once."""
        moves, self.moves = tuple(self.moves), []
        return moves

    def take_events(self) -> tuple[MemoryEvent, ...]:
        """What happened to the books since the last time this was asked."""
        events, self.events = tuple(self.events), []
        return events

    def use(self) -> MemoryUse:
        """Positions that hold a token of somebody's, that stand in a block table, that exist; shared ones once."""
        filled: dict[int, int] = {}  # of blocks that are not full for everyone
        for sequence, holding in self._holders.items():
            computed = max(sequence.num_computed_tokens, holding.shared_tokens)
            first = computed // self.block_size
            for place, block in enumerate(sequence.block_table[first:], first):
                here = min(max(computed - place * self.block_size, 0), self.block_size)
                filled[block] = max(filled.get(block, 0), here)
        full = (len(self.pool.owners) - len(filled)) * self.block_size
        return MemoryUse(full + sum(filled.values()), len(self.pool.owners) * self.block_size, self.num_positions)

    def check_integrity(self) -> None:
        """Raise AssertionError in words if the books are wrong. Tests call it after every step."""
        self.pool.check_integrity()
        owners: Counter[int] = Counter()
        for sequence in self._holders:
            name, table, stored = sequence.request_id, sequence.block_table, sequence.num_computed_tokens
            room = len(table) * self.block_size
            assert len(set(table)) == len(table), f"{name!r} has a block twice: {table}"
            assert stored <= room, f"{name!r} stored {stored} in {room}"
            owners.update(table)
        assert owners == self.pool.owners, f"tables say {dict(owners)}, owner counts {self.pool.owners}"
        self._host.check_integrity(self.block_size)
        if self.index is not None:
            self.index.check_integrity(self._holders, self.block_size)
