"""One contiguous region of K/V positions a sequence, taken whole at admission: memory before paging.

Nobody knows how long an answer will be, so the region is as long as somebody decided beforehand.
What is taken and not used is the waste that notebook 05 measures and paging removes (article 1, "a
memória virou o palco"). The three reserves are those of the vLLM paper's Orca baselines (section 6.1).
Introduced in notebook 02.
"""

from minibatch.request import Request, Sequence
from minibatch.trace import MemoryUse


def _max(need: int, max_model_len: int) -> int:
    return max_model_len


def _pow2(need: int, max_model_len: int) -> int:
    return min(1 << (need - 1).bit_length(), max_model_len)


def _exact(need: int, max_model_len: int) -> int:
    return need


# "exact" is an oracle only where max_new_tokens is the true length, as it is in a replayed trace.
RESERVES = {"max": _max, "pow2": _pow2, "exact": _exact}


class ContiguousMemory:
    """A pool of `num_positions` K/V positions cut into regions, first fit.

    `reserve` says how long a region is: "max" (max_model_len), "pow2" (the next power of two of the
    request's need, P + N - 1) or "exact" (the need itself).
    """

    def __init__(self, num_positions: int, max_model_len: int, reserve: str = "max"):
        if max_model_len < 1:
            raise ValueError(f"max_model_len={max_model_len!r}: must be at least 1")
        if num_positions < 1:
            raise ValueError(f"num_positions={num_positions!r}: must be at least 1")
        if reserve not in RESERVES:
            raise ValueError(f"reserve={reserve!r}: choose one of {', '.join(RESERVES)}")
        self.num_positions, self.max_model_len, self.reserve = num_positions, max_model_len, reserve
        self._holders: list[Sequence] = []  # in order of their regions

    def region_length(self, request: Request) -> int:
        """Positions this request takes at admission."""
        return RESERVES[self.reserve](request.kv_need, self.max_model_len)

    def refusal(self, request: Request) -> str | None:
        """Why this request can never fit, even alone, with need and capacity; None if it can."""
        need = max(self.region_length(request), request.kv_need)
        if need <= self.num_positions:
            return None
        return f"needs {need} K/V positions (reserve={self.reserve!r}), the whole pool has {self.num_positions}"

    def admit(self, sequence: Sequence) -> bool:
        """Take a region for the whole life of a sequence; False, and nothing changed, where no gap is long enough."""
        length = self.region_length(sequence.request)
        gap_starts = [0] + [holder.region.stop for holder in self._holders]
        gap_stops = [holder.region.start for holder in self._holders] + [self.num_positions]
        for index, (start, stop) in enumerate(zip(gap_starts, gap_stops)):
            if stop - start >= length:
                sequence.region = range(start, start + length)
                self._holders.insert(index, sequence)
                return True
        return False

    def release(self, sequence: Sequence) -> None:
        """Give a region back."""
        if sequence.region is None:
            raise ValueError(f"request {sequence.request_id!r} holds no region to release")
        self._holders.remove(sequence)
        sequence.region = None

    def use(self) -> MemoryUse:
        """Positions that hold a token, are taken, exist."""
        used = sum(holder.num_computed_tokens for holder in self._holders)
        return MemoryUse(used, sum(len(holder.region) for holder in self._holders), self.num_positions)

    def check_integrity(self) -> None:
        """Raise AssertionError in words if the books are wrong. Tests call it after every step."""
        end = 0
        for holder in self._holders:
            name, region = holder.request_id, holder.region
            assert region is not None, f"{name!r} is listed as a holder but has no region"
            assert region.start >= end, f"{name!r} starts at {region.start}, inside the region that ends at {end}"
            assert holder.num_computed_tokens <= len(region), (
                f"{name!r} has stored {holder.num_computed_tokens} tokens in a region of {len(region)}"
            )
            end = region.stop
        assert end <= self.num_positions, f"the last region ends at {end}, the pool at {self.num_positions}"
