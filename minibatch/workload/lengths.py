"""How long: each function returns a sampler that draws one length, in tokens."""

import math
from collections.abc import Callable
from random import Random

from minibatch.workload.check import check, check_tokens, is_finite

Lengths = Callable[[Random], int]  # draws one length, in tokens

_MAX_REDRAWS = 1000  # so many draws above the cap in a row are a mistake in the parameters, not bad luck


def equal(tokens: int) -> Lengths:
    """Every length the same: the case in which a static batch wastes nothing."""
    check_tokens("tokens", tokens)
    return lambda rng: tokens


def uniform(lo: int, hi: int) -> Lengths:
    """Every whole number from `lo` to `hi`, both included, equally likely. Orca's outputs are uniform(1, 128)."""
    check_tokens("lo", lo)
    check_tokens("hi", hi, least=lo)
    return lambda rng: rng.randint(lo, hi)


def exponential(mean: float, cap: int) -> Lengths:
    """Whole numbers from 1, as if an answer ended after each token with probability 1 / `mean`.

    That is the exponential law counted in tokens. `mean` is the mean before the cap: a length above `cap` is
    drawn again, as in Anyscale's benchmark, and not cut to `cap`, which would pile up equal lengths there.
    """
    check(is_finite(mean) and mean > 1, "mean", mean, "must be a finite number of tokens above 1")
    check_tokens("cap", cap)
    rate = -math.log1p(-1 / mean)
    return _redrawn(lambda rng: math.ceil(rng.expovariate(rate)), cap)


def lognormal(median: float, sigma: float, cap: int) -> Lengths:
    """exp(normal), rounded: the logarithm has mean ln `median` and standard deviation `sigma`.

    A length above `cap` (or one that rounds to 0) is drawn again. The outputs of the Azure conversation trace have
    a log mean of 5.02 and a log deviation of 0.86, which is about lognormal(median=151, sigma=0.86, cap=1000).
    """
    check(is_finite(median) and median >= 1, "median", median, "must be a finite number of tokens, at least 1")
    check(is_finite(sigma) and sigma >= 0, "sigma", sigma, "must be a finite number, at least 0")
    check_tokens("cap", cap, least=math.ceil(median))
    return _redrawn(lambda rng: round(rng.lognormvariate(math.log(median), sigma)), cap)


def bimodal(short: int, long: int, share: float) -> Lengths:
    """Two lengths only: `long` with probability `share`, else `short`."""
    check_tokens("short", short)
    check_tokens("long", long, least=short)
    check(is_finite(share) and 0 <= share <= 1, "share", share, "the share of long ones lies between 0 and 1")
    return lambda rng: long if rng.random() < share else short


def _redrawn(draw: Lengths, cap: int) -> Lengths:
    """`draw`, repeated until the length lies in [1, cap]."""

    def sampler(rng: Random) -> int:
        for _ in range(_MAX_REDRAWS):
            length = draw(rng)
            if 1 <= length <= cap:
                return length
        raise ValueError(f"cap={cap!r}: {_MAX_REDRAWS} lengths in a row lay above it; raise it or lower the mean")

    return sampler
