"""A fixed pool of blocks of K/V positions: how many owners each has, and which free one is taken next.

Introduced in notebook 06. Source: the vLLM paper, section 4.2 (reference counts), and the free queue of vLLM V1.
"""

from collections import OrderedDict


class BlockPool:
    """Blocks 0 .. num_blocks - 1. A block is free, or stands in as many block tables as it has owners.

    Free blocks wait in one queue, in the order in which they were given back; the front is taken first. A block
    that was never taken stands before all of those. So what a free block still contains stays readable for as
    long as possible, which is all that a prefix cache needs: its reuse is least recently used, and lazy.
    """

    def __init__(self, num_blocks: int):
        if num_blocks < 1:
            raise ValueError(f"num_blocks={num_blocks!r}: must be at least 1")
        self.num_blocks = num_blocks
        self.owners: dict[int, int] = {}  # block -> how many tables it stands in; a free block is absent
        self._returned: OrderedDict[int, None] = OrderedDict()  # given back, oldest first
        self._untouched = 0  # blocks from here on were never taken; they need no place in a queue

    @property
    def num_free(self) -> int:
        """Blocks without an owner."""
        return self.num_blocks - len(self.owners)

    def take(self) -> int:
        """The next free block, now with one owner. Raises IndexError if there is none."""
        if self._untouched < self.num_blocks:
            block = self._untouched
            self._untouched += 1
        elif self._returned:
            block, _ = self._returned.popitem(last=False)
        else:
            raise IndexError(f"none of the {self.num_blocks} blocks is free")
        self.owners[block] = 1
        return block

    def share(self, block: int) -> None:
        """One owner more. A free block, found by its content, leaves the queue from wherever it stands."""
        if block in self.owners:
            self.owners[block] += 1
        elif block in self._returned:
            del self._returned[block]
            self.owners[block] = 1
        else:
            raise ValueError(f"block {block} was never taken, so it holds nothing to share")

    def give_back(self, block: int) -> None:
        """One owner less; the last one leaves the block at the end of the queue."""
        count = self.owners.get(block)
        if count is None:
            raise ValueError(f"block {block} is free already")
        if count > 1:
            self.owners[block] = count - 1
        else:
            del self.owners[block]
            self._returned[block] = None

    def reuse_first(self, block: int) -> None:
        """Move a free block to the front of the queue: nobody will look for what it holds."""
        self._returned.move_to_end(block, last=False)

    def reuse_last(self, block: int) -> None:
        """Move a free block to the end of the queue, as if it had been used now."""
        self._returned.move_to_end(block)

    def free_order(self) -> list[int]:
        """Free blocks in the order in which they will be taken."""
        return [*range(self._untouched, self.num_blocks), *self._returned]

    def check_integrity(self) -> None:
        """Raise AssertionError in words if a block is lost, doubled, or held by nobody."""
        both = self.owners.keys() & self._returned.keys()
        assert not both, f"blocks {sorted(both)} are owned and in the free queue"
        known = len(self.owners) + len(self._returned)
        assert known == self._untouched, f"{self._untouched} blocks were taken so far, {known} are accounted for"
        assert all(count >= 1 for count in self.owners.values()), f"an owner count below 1 in {self.owners}"
        beyond = [block for block in (*self.owners, *self._returned) if not 0 <= block < self._untouched]
        assert not beyond, f"blocks {beyond} were never taken"
