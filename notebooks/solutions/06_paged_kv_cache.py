"""Solutions to the exercises of notebook 06. Try them yourself first: the checks help."""


def slot_mapping(block_table: list[int], start: int, count: int, block_size: int) -> list[int]:
    """Quotient and remainder: which entry of the table, and where in that block."""
    return [block_table[p // block_size] * block_size + p % block_size for p in range(start, start + count)]


def where_to_write(block_table: list[int], owners: dict[int, int], position: int, block_size: int) -> str:
    """A position past the table needs a block; a block that others can see must not change under them."""
    place = position // block_size
    if place == len(block_table):
        return "take"
    return "copy" if owners[block_table[place]] > 1 else "write"


def newcomers_table(free: list[int], hits: list[int], num_blocks: int) -> list[int]:
    """Share first, then count: a hit that was free is no longer there to be taken."""
    left = [block for block in free if block not in hits]
    missing = num_blocks - len(hits)
    return hits + left[:missing] if missing <= len(left) else []
