"""Solutions to the exercises of notebook 05. Try them yourself first: the checks help."""


def most_sequences(
    layers: int, kv_heads: int, head_dim: int, parameters: float, memory_bytes: float, length: int
) -> int:
    """Bytes left over bytes a sequence, rounded down."""
    left = memory_bytes - 2 * parameters
    a_token = 2 * layers * kv_heads * head_dim * 2  # K and V, two bytes each
    return max(0, int(left // (a_token * length)))


def split(pool: int, regions: list[tuple[int, int, int]]) -> tuple[int, int, int, int]:
    """What is filled, what will be, what never will, what is in no region."""
    used = sum(now for _, now, _ in regions)
    reserved = sum(end - now for _, now, end in regions)
    internal = sum(length - end for length, _, end in regions)
    return used, reserved, internal, pool - used - reserved - internal


def fragment(pool: int) -> tuple[list[int], list[int]]:
    """Ten times one just too short and one of a single position; all the long ones leave.

    Each of the ten that stay takes one position and spoils the gaps on both of its sides.
    """
    pieces = 10
    lengths = [pool // pieces - 1, 1] * pieces
    return lengths, list(range(0, 2 * pieces, 2))
