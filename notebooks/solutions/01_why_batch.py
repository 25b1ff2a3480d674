"""Solutions to the exercises of notebook 01. Try them yourself first: the checks help."""


def bytes_per_step(weight_bytes: int, kv_bytes_per_token: int, contexts: list[int]) -> int:
    """The weights once for all; K and V of every sequence's own context."""
    return weight_bytes + kv_bytes_per_token * sum(contexts)


def roofline_tokens_per_s(
    batch: float, weight_bytes: float, flops_per_token: float, bandwidth: float, arithmetic: float
) -> float:
    """A step lasts as long as the slower of reading and computing, and gives `batch` tokens."""
    reading, computing = weight_bytes / bandwidth, batch * flops_per_token / arithmetic
    return batch / max(reading, computing)


def balance_batch(parameters: float, item_bytes: int, bandwidth: float, arithmetic: float) -> float:
    """parameters * item_bytes / bandwidth = batch * 2 * parameters / arithmetic: the size of the model drops out."""
    return item_bytes * arithmetic / (2 * bandwidth)
