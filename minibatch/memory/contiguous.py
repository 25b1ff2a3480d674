"""One contiguous region of K/V positions a sequence, taken whole at admission: memory before paging.

Nobody knows how long an answer will be, so the region is as long as somebody decided beforehand.
What is taken and not used is the waste that notebook 05 measures and paging removes (article 1, "a
memória virou o palco"). The three reserves are those of the vLLM paper's Orca baselines (section 6.1).
Introduced in notebook 02, with its placements in notebook 05.
"""

from minibatch.memory.placement import PLACEMENTS, next_power_of_two
from minibatch.request import Request, Sequence
from minibatch.step import RegionEvent
from minibatch.trace import MemoryUse


def _max(request: Request, max_model_len: int) -> int:
    return max_model_len


def _pow2(request: Request, max_model_len: int) -> int:
    """The prompt is known; the answer is guessed at most twice too long (25 tokens: room for 32)."""
    guess = next_power_of_two(request.sampling.max_new_tokens)
    return min(len(request.prompt) + guess - 1, max_model_len)


def _exact(request: Request, max_model_len: int) -> int:
    return request.kv_need


# "pow2" and "exact" are oracles only where max_new_tokens is the true length, as it is in a replayed trace.
RESERVES = {"max": _max, "pow2": _pow2, "exact": _exact}


class ContiguousMemory:
    """A pool of `num_positions` K/V positions cut into regions.

    `reserve` says how long a region is: "max" (max_model_len), "pow2" (the prompt and the next power of two of
    max_new_tokens, less the one position that the last token does not need) or "exact" (P + N - 1).
    `placement` says where it goes: "first_fit" (the lowest gap) or "buddy" (pieces of powers of two).
    """

    def __init__(self, num_positions: int, max_model_len: int, reserve: str = "max", placement: str = "first_fit"):
        if max_model_len < 1:
            raise ValueError(f"max_model_len={max_model_len!r}: must be at least 1")
        if num_positions < 1:
            raise ValueError(f"num_positions={num_positions!r}: must be at least 1")
        if reserve not in RESERVES:
            raise ValueError(f"reserve={reserve!r}: choose one of {', '.join(RESERVES)}")
        if placement not in PLACEMENTS:
            raise ValueError(f"placement={placement!r}: choose one of {', '.join(PLACEMENTS)}")
        self.num_positions, self.max_model_len, self.reserve = num_positions, max_model_len, reserve
        self.placement = PLACEMENTS[placement](num_positions)
        self.events: list[RegionEvent] = []
        self._holders: dict[Sequence, None] = {}
        self._reserved = 0  # positions in all regions together

    def region_length(self, request: Request) -> int:
        """Positions this request takes at admission."""
        return RESERVES[self.reserve](request, self.max_model_len)

    def refusal(self, request: Request) -> str | None:
        """Why this request can never fit, even alone, with need and capacity; None if it can."""
        need, length, longest = request.kv_need, self.region_length(request), self.placement.longest
        if need > self.max_model_len:
            return f"needs {need} K/V positions, max_model_len is {self.max_model_len}"
        if length <= longest:
            return None
        room = f"the whole pool has {self.num_positions}"
        if longest < self.num_positions:
            room += f", its longest piece {longest}"
        return f"needs {length} K/V positions (reserve={self.reserve!r}), {room}"

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Its region holds all it may ever need."""
        return True

    def holds(self, sequence: Sequence) -> bool:
        """True if it has a region."""
        return sequence.region is not None

    def take_moves(self) -> tuple[()]:
        """Nothing ever moves."""
        return ()

    def take_events(self) -> tuple[RegionEvent, ...]:
        """Regions taken and given back since the last time this was asked."""
        events, self.events = tuple(self.events), []
        return events

    def admit(self, sequence: Sequence) -> bool:
        """Take a region for the whole life of a sequence; False, and nothing changed, where there is no place."""
        if sequence.region is not None:
            raise ValueError(f"request {sequence.request_id!r} holds a region already")
        length = self.region_length(sequence.request)
        start = self.placement.take(length)
        if start is None:
            return False
        sequence.region = range(start, start + length)
        self._holders[sequence] = None
        self._reserved += length
        self.events.append(RegionEvent("take", sequence.request_id, start, length))
        return True

    def release(self, sequence: Sequence) -> None:
        """Give a region back."""
        region = sequence.region
        if region is None:
            raise ValueError(f"request {sequence.request_id!r} holds no region to release")
        self.placement.give_back(region)
        del self._holders[sequence]
        self._reserved -= len(region)
        sequence.region = None
        self.events.append(RegionEvent("give", sequence.request_id, region.start, len(region)))

    def use(self) -> MemoryUse:
        """Positions that hold a token, lie in a region, exist. What a buddy piece has beyond its region is in none."""
        used = sum(holder.num_computed_tokens for holder in self._holders)
        return MemoryUse(used, self._reserved, self.num_positions)

    def check_integrity(self) -> None:
        """Raise AssertionError in words if the books are wrong. Tests call it after every step."""
        spans = []
        for holder in self._holders:
            name, region = holder.request_id, holder.region
            assert region is not None, f"{name!r} is listed as a holder but has no region"
            assert holder.num_computed_tokens <= len(region), (
                f"{name!r} has stored {holder.num_computed_tokens} tokens in a region of {len(region)}"
            )
            spans.append((self.placement.span(region), f"the region of {name!r}"))
        spans += [(gap, "a free piece") for gap in self.placement.free()]
        end = 0
        for span, what in sorted(spans, key=lambda each: each[0].start):
            assert span.start >= end, f"{what} starts at {span.start}, inside what ends at {end}"
            assert span.start == end, f"positions {end} to {span.start - 1} are neither held nor free"
            end = span.stop
        assert end == self.num_positions, f"held and free pieces end at {end}, the pool at {self.num_positions}"
        held = sum(len(holder.region) for holder in self._holders)
        assert held == self._reserved, f"the regions hold {held} positions, the running count is {self._reserved}"
