"""Finding K and V that are stored already: whole blocks, by the chain of tokens that leads to them.

Introduced in notebook 06. Source: vLLM's automatic prefix caching. There a chain is known by a hash; here by a
number given once and never again, and the tokens themselves are compared, so a collision can do no harm.
SGLang's rules for the same tree are in `radix.py`.
"""

from collections.abc import Iterable

from minibatch.memory.blocks import BlockPool
from minibatch.request import Sequence


class PrefixIndex:
    """A tree of blocks. Each edge is one block's tokens; a node is the chain of all tokens from the start.

    K and V of a token depend on every token before it, so a block may be reused only below the same chain.
    """

    ROOT = 0
    one_copy = False  # two blocks may hold the same chain, if two sequences computed it at the same time

    def __init__(self) -> None:
        self._children: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}  # (node, tokens) -> (node, block)
        self._key: dict[int, tuple[int, tuple[int, ...]]] = {}  # block -> where it is entered above
        self._nodes = self.ROOT

    def __len__(self) -> int:
        return len(self._children)

    def __contains__(self, block: int) -> bool:
        return block in self._key

    def find(self, chain: Iterable[tuple[int, ...]]) -> tuple[list[int], int]:
        """The blocks stored for the longest known beginning of a chain, and the node where it ends."""
        node, blocks = self.ROOT, []
        for tokens in chain:
            entry = self._children.get((node, tokens))
            if entry is None:
                break
            node, block = entry
            blocks.append(block)
        return blocks, node

    def publish(self, node: int, tokens: tuple[int, ...], block: int) -> int:
        """Enter a block whose K and V are all stored, below `node`. Returns the node of the longer chain.

        If another block holds the same chain already, that one stays the one to be found.
        """
        entry = self._children.get((node, tokens))
        if entry is not None:
            return entry[0]
        self.forget(block)  # it may stand below a chain whose beginning is gone
        self._nodes += 1  # never used twice: what stood below a forgotten chain cannot be found below another
        self._children[node, tokens] = self._nodes, block
        self._key[block] = node, tokens
        return self._nodes

    def forget(self, block: int) -> None:
        """The block gets new content."""
        if key := self._key.pop(block, None):
            del self._children[key]

    def freed(self, block: int, pool: BlockPool) -> None:
        """A block lost its last owner. It waits for its turn, whatever it holds: the pool's queue is the policy."""

    def looked_at(self, blocks: list[int], pool: BlockPool) -> None:
        """Blocks were found for one that cannot enter yet. Only use counts, so nothing happens."""

    def check_integrity(self, holders: Iterable[Sequence], block_size: int, pool: BlockPool) -> None:
        """Raise AssertionError in words if an entry and what the block's owners stored in it disagree."""
        assert {key: block for block, key in self._key.items()} == {
            key: block for key, (_, block) in self._children.items()
        }, "the two directions of the prefix index disagree"
        held, computed = set(), set()
        for sequence in holders:
            whole = sequence.num_computed_tokens // block_size
            held.update(sequence.block_table)
            computed.update(sequence.block_table[:whole])
            for place, block in enumerate(sequence.block_table[:whole]):
                tokens = sequence.tokens(place * block_size, block_size)
                right = block not in self._key or self._key[block][1] == tokens
                assert right, f"block {block} is entered under tokens that it does not hold"
        early = (held & self._key.keys()) - computed
        assert not early, f"blocks {sorted(early)} are published and not yet computed"
