"""Blocks in host memory, where a swapped-out sequence waits with its K and V. Introduced in notebook 07.

Source: the vLLM paper, section 4.5 (swapping).
"""

from itertools import chain

from minibatch.request import Sequence


class HostBlocks:
    """`num_blocks` places, each the size of one block of the pool on the device; no sharing, no prefixes."""

    def __init__(self, num_blocks: int):
        self.num_blocks = num_blocks
        self.places: dict[Sequence, list[int]] = {}  # in the order of the sequence's tokens
        self.free = list(range(num_blocks))

    def take(self, sequence: Sequence, count: int) -> list[int] | None:
        """Places for `count` blocks of a sequence that has none; None, and nothing changed, if they are not free."""
        if count > len(self.free):
            return None
        self.places[sequence] = [self.free.pop() for _ in range(count)]
        return self.places[sequence]

    def give_back(self, sequence: Sequence) -> list[int]:
        """The places a sequence had, free from now on."""
        places = self.places.pop(sequence)
        self.free += places
        return places

    def check_integrity(self, block_size: int) -> None:
        """Raise AssertionError in words if a place is lost or doubled, or a sequence is not whole."""
        for sequence, places in self.places.items():
            name, need = sequence.request_id, -(-sequence.num_computed_tokens // block_size)
            assert not sequence.block_table, f"{name!r} is swapped out and holds blocks"
            assert len(places) == need, f"{name!r} in host memory: needs {need} blocks, has {len(places)}"
        everything = sorted(chain(self.free, *self.places.values()))
        assert everything == list(range(self.num_blocks)), "host blocks lost or doubled"
