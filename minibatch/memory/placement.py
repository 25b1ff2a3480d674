"""Where a contiguous region goes: first fit, or a buddy allocator. Introduced in notebook 05.

A placement knows lengths and places of regions, not whose they are. It answers `take(length)` with the first
position of a region, or None and nothing changed; `give_back(region)`; `span(region)`, all that a region keeps from
others; `free()`, what is left; and `longest`, the longest region that the empty pool could take.
"""

from bisect import bisect


class FirstFit:
    """The lowest gap that is long enough. What is left over in small gaps is external fragmentation."""

    def __init__(self, num_positions: int):
        self.longest = num_positions
        self._gaps = [range(num_positions)]  # in order, never two side by side

    def take(self, length: int) -> int | None:
        """The start of a region in the lowest gap that holds it; None if there is none."""
        for index, gap in enumerate(self._gaps):
            if len(gap) >= length:
                rest = range(gap.start + length, gap.stop)
                self._gaps[index : index + 1] = [rest] if rest else []
                return gap.start
        return None

    def give_back(self, region: range) -> None:
        """The gap left by a region grows together with those beside it."""
        index = bisect(self._gaps, region.start, key=lambda gap: gap.start)
        start, stop, first, last = region.start, region.stop, index, index
        if index and self._gaps[index - 1].stop == start:
            start, first = self._gaps[index - 1].start, index - 1
        if index < len(self._gaps) and self._gaps[index].start == stop:
            stop, last = self._gaps[index].stop, index + 1
        self._gaps[first:last] = [range(start, stop)]

    def span(self, region: range) -> range:
        """The region and nothing else."""
        return region

    def free(self) -> list[range]:
        """The gaps, in order."""
        return list(self._gaps)


class Buddy:
    """Halves of halves: a region of n positions gets a whole piece of the next power of two.

    A piece of s positions starts at a multiple of s. A larger one is halved until the size is right, and a piece
    given back grows together with its buddy, the other half, if that is free too. So gaps heal quickly; the price is
    up to half of each piece (Knowlton, CACM 1965). A pool whose size is no power of two begins as several pieces,
    the largest first: 15,728 = 8,192 + 4,096 + 2,048 + 1,024 + ...
    """

    def __init__(self, num_positions: int):
        self.longest = 1 << num_positions.bit_length() - 1
        self._free: dict[int, set[int]] = {}  # size of a piece -> where such pieces start
        start = 0
        for bit in reversed(range(num_positions.bit_length())):
            if num_positions >> bit & 1:
                self._free[1 << bit] = {start}
                start += 1 << bit

    def take(self, length: int) -> int | None:
        """The start of the lowest of the smallest pieces that hold the region, halved as far as it goes."""
        size = next_power_of_two(length)
        large = min((each for each, starts in self._free.items() if each >= size and starts), default=None)
        if large is None:
            return None
        start = min(self._free[large])
        self._free[large].remove(start)
        while large > size:
            large //= 2
            self._free.setdefault(large, set()).add(start + large)
        return start

    def give_back(self, region: range) -> None:
        """Join with the buddy, and with the buddy of both, as long as it is free."""
        start, size = region.start, next_power_of_two(len(region))
        while (buddy := start ^ size) in self._free.get(size, ()):
            self._free[size].remove(buddy)
            start, size = min(start, buddy), 2 * size
        self._free.setdefault(size, set()).add(start)

    def span(self, region: range) -> range:
        """The whole piece in which a region lies: what the rounding cut off is of use to nobody."""
        return range(region.start, region.start + next_power_of_two(len(region)))

    def free(self) -> list[range]:
        """The free pieces, in order. Two side by side need not be buddies."""
        pieces = [range(start, start + size) for size, starts in self._free.items() for start in starts]
        return sorted(pieces, key=lambda piece: piece.start)


Placement = FirstFit | Buddy
PLACEMENTS: dict[str, type] = {"first_fit": FirstFit, "buddy": Buddy}


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is not below n (n at least 1)."""
    return 1 << (n - 1).bit_length()
