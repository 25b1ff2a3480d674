"""The paged KV cache's books: a block table for each sequence, grown a block at a time. Introduced in notebook 06.

Source: PagedAttention (Kwon et al., SOSP 2023, section 4); article 1, "a memória virou o palco".
"""

from dataclasses import dataclass

from minibatch.memory import paged_audit
from minibatch.memory.host import HostBlocks
from minibatch.memory.prefix import PrefixIndex
from minibatch.memory.tables import BlockTables
from minibatch.request import Request, Sequence
from minibatch.step import Move
from minibatch.trace import MemoryUse


@dataclass(slots=True)
class _Holding:
    """What is known of one sequence's blocks beyond its block table."""

    published: int = 0  # its first so many blocks are in the prefix index, or another's copy of them is
    node: int = PrefixIndex.ROOT  # the chain they form


class PagedMemory(BlockTables):
    """`num_blocks` blocks of `block_size` K/V positions, and who holds which.

    A sequence's `block_table` lists its blocks in order: position p lies in block_table[p // block_size]. Every
    operation gives all that was asked for or changes nothing. `prefix_cache` lets a newcomer start with blocks
    that hold its first tokens already: "hash" (or True) as vLLM does, "radix" as SGLang does. `host_blocks` is the
    room for swapped-out sequences (None: no swapping). `events=False` keeps no record of single blocks: a long
    simulation has no use for it.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        prefix_cache: bool | str = False,
        host_blocks: int | None = None,
        events: bool = True,
    ):
        if block_size < 1:
            raise ValueError(f"block_size={block_size!r}: must be at least 1")
        if host_blocks is not None and host_blocks < 0:
            raise ValueError(f"host_blocks={host_blocks!r}: must be 0 or more, or None for no swapping")
        super().__init__(num_blocks, prefix_cache, events)
        self.num_blocks, self.block_size, self.host_blocks = num_blocks, block_size, host_blocks
        self.num_positions = self.max_model_len = num_blocks * block_size
        self._holders: dict[Sequence, _Holding] = {}
        self._forked: dict[Sequence, int] = {}  # who may write into a shared block -> tokens that a fork found stored
        self._host = HostBlocks(host_blocks or 0)
        self.hit_tokens = self.asked_tokens = 0  # of the prefix cache, since the start

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
        table, forked = sequence.block_table, sequence in self._forked
        if num_tokens <= len(table) * self.block_size and not forked:
            return True
        missing = max(0, self.blocks_for(num_tokens) - len(table))
        tail = sequence.num_computed_tokens // self.block_size  # the place of the next block to be written
        shared = forked and tail < len(table) and self._is_shared(table[tail])
        if missing + shared > self.pool.num_free:
            return False
        if shared:
            self._copy_on_write(sequence, tail)
        self._forked.pop(sequence, None)
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
            if self.index.one_copy:
                self._keep_one_copy(sequence, holding)
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
        self._forked.pop(sequence, None)
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
        self._holders[child] = _Holding()
        self._forked[child] = prompt
        self._forked.setdefault(parent, 0)

    def _can_fork(self, sequence: Sequence) -> bool:
        parent, prompt = sequence.parent, len(sequence.request.prompt)
        if sequence.output or parent not in self._holders or parent.num_computed_tokens < prompt:
            return False
        # Back from host memory it holds copies, until it publishes: no chain to share where one copy is the rule.
        exchanges = self.prefix_cache and self.index.one_copy
        return not exchanges or self._holders[parent].published == parent.num_computed_tokens // self.block_size

    def _find(self, sequence: Sequence) -> tuple[list[int], int]:
        """Stored blocks of the sequence's first tokens: whole ones, and never the last token.

        That one has to be computed even if its K and V are known, for the next token is drawn from its output.
        """
        if self.index is None:
            return [], PrefixIndex.ROOT
        size, whole = self.block_size, (sequence.num_tokens - 1) // self.block_size
        return self.index.find(sequence.tokens(place * size, size) for place in range(whole))

    def _is_shared(self, block: int) -> bool:
        """True if others read it, or may come to: nobody writes there."""
        return self.pool.owners[block] > 1 or (self.index is not None and block in self.index)

    def _keep_one_copy(self, sequence: Sequence, holding: _Holding) -> None:
        """The block just published may repeat one that was stored before: use that one, and give the copy back."""
        own, stored = sequence.block_table[holding.published], self.index.block_of(holding.node)
        if stored != own:
            self._share(sequence, stored)
            sequence.block_table[holding.published] = sequence.block_table.pop()
            self._give_back(sequence, own)

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

    # ---- looking ----

    def stored_prefix(self, sequence: Sequence) -> int:
        """How many of its first tokens a sequence that waits would find stored; an access, where accesses count."""
        found, _ = self._find(sequence)
        if found:
            self.index.looked_at(found, self.pool)
        return len(found) * self.block_size

    def use(self) -> MemoryUse:
        """Positions that hold a token of somebody's, that stand in a block table, that exist; shared ones once.

        Asked in every step, so it counts sequences and not their blocks. That is exact as long as every block with
        more than one owner is full, and only the blocks of a fork that has not written yet may not be.
        """
        held = len(self.pool.owners)
        if self._forked:
            used = paged_audit.tokens_in_tables(self)
        else:
            used = sum(sequence.num_computed_tokens for sequence in self._holders)
            used -= (self._entries - held) * self.block_size  # counted by each owner but one
        return MemoryUse(used, held * self.block_size, self.num_positions)

    def check_integrity(self) -> None:
        """Raise AssertionError in words if the books are wrong. Tests call it after every step."""
        paged_audit.check(self)
