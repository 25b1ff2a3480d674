"""Lab 4: a reader's block allocator as the memory of the real engine.

An `IterationScheduler` asks its memory for room, an executor looks at `sequence.block_table` and obeys moves. This
stands between them and an allocator: each question becomes `allocate`, `append`, `fork` or `free`.
"""

from collections.abc import Callable

from minibatch.checks.lab4_play import OutOfBlocks, audit
from minibatch.memory import PagedMemory
from minibatch.request import Sequence
from minibatch.step import MemoryEvent, Move
from minibatch.trace import MemoryUse


class AllocatorMemory(PagedMemory):
    """A `PagedMemory` that keeps no books of its own: `answer(num_blocks, block_size)` does."""

    def __init__(self, answer: Callable, num_blocks: int, block_size: int = 4):
        super().__init__(num_blocks, block_size)
        self.pool = None  # the package's own free list: whoever looks at it here is mistaken
        self.allocator = answer(num_blocks, block_size)
        self.tokens: dict[Sequence, int] = {}  # how many of each sequence the allocator knows

    def admit(self, sequence: Sequence, num_tokens: int | None = None, keep_free: int = 0) -> bool:
        """A table for a newcomer; False where there is no room."""
        if keep_free:
            raise ValueError(f"keep_free={keep_free!r}: none is kept free here; use reserve='prompt', no watermark")
        name, count = sequence.request_id, num_tokens or sequence.request.kv_need
        stored = len(sequence.request.prompt) - 1  # a fork computes the prompt's last token again
        forks = stored and self._can_fork(sequence)
        try:
            if forks:
                self.allocator.fork(sequence.parent.request_id, name, stored)
            else:
                self.allocator.allocate(name, count)
        except OutOfBlocks:
            return False
        self._holders[sequence], self.tokens[sequence] = None, stored if forks else count
        sequence.num_computed_tokens = stored if forks else 0
        self._note(sequence)
        if self.grow(sequence, count):
            return True
        self.release(sequence)
        sequence.num_computed_tokens = 0
        return False

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Room for all tokens up to `num_tokens`, one `append` each; False at the first for which there is none."""
        while self.tokens[sequence] < num_tokens:
            try:
                self.allocator.append(sequence.request_id)
            except OutOfBlocks:
                return False
            self.tokens[sequence] += 1
            self._note(sequence)
        return True

    def release(self, sequence: Sequence) -> None:
        """It ended, or gives way to others."""
        self.allocator.free(sequence.request_id)
        del self._holders[sequence], self.tokens[sequence]
        self._tell(sequence, [])

    def use(self) -> MemoryUse:
        """Positions that hold a token, that stand in a table, that exist; shared ones once."""
        filled: dict[int, int] = {}
        for sequence in self._holders:
            for place, block in enumerate(sequence.block_table):
                tokens = min(max(sequence.num_computed_tokens - place * self.block_size, 0), self.block_size)
                filled[block] = max(tokens, filled.get(block, 0))
        return MemoryUse(sum(filled.values()), len(filled) * self.block_size, self.num_positions)

    def check_integrity(self) -> None:
        """The audit of the checks: raises CheckFailed in words."""
        audit(self.allocator, {sequence.request_id: tokens for sequence, tokens in self.tokens.items()})

    def _note(self, changed: Sequence) -> None:
        """Pass on what an operation did to a table, and the copies that it asks for."""
        self.moves += [Move("copy", source, target) for source, target in self.allocator.take_copies()]
        self._tell(changed, list(self.allocator.table(changed.request_id)))

    def _tell(self, sequence: Sequence, table: list[int]) -> None:
        others = {block for other in self._holders if other is not sequence for block in other.block_table}
        name, before = sequence.request_id, sequence.block_table
        kinds = [("share" if block in others else "take", block) for block in table if block not in before]
        kinds += [("give", block) for block in reversed(before) if block not in table]
        self.events += [MemoryEvent(kind, name, block) for kind, block in kinds]
        sequence.block_table = table
