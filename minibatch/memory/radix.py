"""SGLang's rules for a prefix cache, over the same tree of blocks and the same pool.

Source: SGLang's RadixAttention (Zheng et al., NeurIPS 2024, section 3): nodes in use are locked, and what is thrown
out is always a leaf, the least recently accessed one. SGLang's tree joins a run of pages without a branch into one
node and throws it out whole; here a node is a block, so no more is thrown out than is needed.
"""

from collections.abc import Iterable

from minibatch.memory.blocks import BlockPool
from minibatch.memory.prefix import PrefixIndex
from minibatch.request import Sequence


class RadixTree(PrefixIndex):
    """The tree of a `PrefixIndex` with three rules more.

    There is one block for a chain: who computed another gives it back and uses the first. A block with nothing
    findable in it is taken before any other, so nothing is thrown out while such a one is there. And to look
    a chain up is to access it, though nothing comes of it yet.

    From the first rule it follows that whoever holds a block holds all above it, so above a block in use none is
    free. Blocks are given back and accessed from the end of a chain to its beginning, so in the pool's queue every
    block stands before the one above it: what is taken from the front is a leaf.
    """

    one_copy = True

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, int] = {}  # node -> block

    def block_of(self, node: int) -> int:
        """The one block that stands for a chain."""
        return self._blocks[node]

    def publish(self, node: int, tokens: tuple[int, ...], block: int) -> int:
        """Enter a block whose K and V are all stored, below `node`. Returns the node of the longer chain."""
        longer = super().publish(node, tokens, block)
        self._blocks.setdefault(longer, block)
        return longer

    def forget(self, block: int) -> None:
        """The block gets new content: a leaf is cut off."""
        if key := self._key.pop(block, None):
            node, _ = self._children.pop(key)
            del self._blocks[node]

    def freed(self, block: int, pool: BlockPool) -> None:
        """Take what cannot be found first."""
        if block not in self._key:
            pool.reuse_first(block)

    def looked_at(self, blocks: list[int], pool: BlockPool) -> None:
        """An access: those of them that are free move to the end of the queue, the last of the chain first."""
        for block in reversed(blocks):
            if block not in pool.owners:
                pool.reuse_last(block)

    def check_integrity(self, holders: Iterable[Sequence], block_size: int, pool: BlockPool) -> None:
        """As every prefix index; and no branch is cut off, and what is taken next is a leaf."""
        super().check_integrity(holders, block_size, pool)
        assert self._blocks == dict(self._children.values()), "nodes and blocks of the radix tree disagree"
        place = {block: at for at, block in enumerate(pool.free_order())}
        for block, (above, _) in self._key.items():
            assert above == self.ROOT or above in self._blocks, f"block {block} stands below one that is gone"
            parent = self._blocks.get(above)
            if block not in place:
                assert parent not in place, f"block {block} is in use and block {parent}, above it, is free"
            elif parent in place:
                assert place[block] < place[parent], f"block {parent} would be taken before block {block}, below it"
        cached = [at for block, at in place.items() if block in self]
        spare = [at for block, at in place.items() if block not in self]
        assert not (cached and spare) or max(spare) < min(cached), "a block with nothing in it waits behind cached ones"
