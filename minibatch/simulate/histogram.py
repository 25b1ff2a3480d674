"""Percentiles of millions of numbers in a few kilobytes: counts in bins that widen with what they count."""

import math

import numpy as np

LEAST, GROWTH, BINS = 1e-6, 1.008, 2600  # from a microsecond to sixteen minutes; a bin's ends differ by 0.8 %


class Histogram:
    """Counts of seconds. A percentile is nearest-rank, off by at most half a bin: 0.4 %. Mean and maximum are exact."""

    def __init__(self) -> None:
        self.counts = np.zeros(BINS, dtype=np.int64)
        self.n, self.total, self.largest = 0, 0.0, 0.0

    def add(self, seconds: np.ndarray) -> None:
        """Count them, float64[n]. What lies below the first bin counts there, what lies above the last, in that."""
        if not len(seconds):
            return
        place = np.log(np.maximum(seconds, LEAST) / LEAST) / math.log(GROWTH)
        self.counts += np.bincount(np.minimum(place.astype(np.int64), BINS - 1), minlength=BINS)
        self.n += len(seconds)
        self.total += float(seconds.sum())
        self.largest = max(self.largest, float(seconds.max()))

    @property
    def mean(self) -> float | None:
        """None of nothing."""
        return self.total / self.n if self.n else None

    def percentile(self, p: float) -> float | None:
        """The middle of the bin that holds the nearest rank, as `metrics.percentile` defines it; None of nothing."""
        if not 0 < p <= 100:
            raise ValueError(f"p={p!r}: a percentile lies above 0 and at most at 100")
        if not self.n:
            return None
        rank = max(math.ceil(round(p * self.n / 100, 9)), 1)
        place = int(np.searchsorted(np.cumsum(self.counts), rank))
        if place == BINS - 1:  # it has no upper end, so no middle
            return self.largest
        return min(LEAST * GROWTH ** (place + 0.5), self.largest)
