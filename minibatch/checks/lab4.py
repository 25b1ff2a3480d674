"""Checks of lab 4, the block allocator: allocate, append, fork, copy-on-write, free.

Each check takes the reader's class, `answer(num_blocks, block_size)`, and plays it through stories, the shortest first.
What is looked at after every operation is in `lab4_play.py`.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from minibatch.checks.base import CheckFailed, NotYet
from minibatch.checks.lab4_play import OutOfBlocks, Play, audit, told

__all__ = ["OutOfBlocks", "audit"]

NEXT_BLOCKS: dict[str, Callable[[list[int]], int]] = {  # the free ones, the longest free first -> the one to be taken
    "oldest": lambda free: free[0],
    "newest": lambda free: free[-1],
    "lowest": min,
}


def check_allocate(answer: Callable) -> None:
    """A table for a number of tokens: just as many blocks as they fill, nobody else's."""
    for size in (4, 1, 16):
        for tokens in (1, size, size + 1, 2 * size, 3 * size - 1, 3 * size, 3 * size + 1):
            Play(answer, 8, size).do("allocate", "A", tokens)
    Play(answer, 8, 4).run(("allocate", "A", 5), ("allocate", "B", 3), ("allocate", "C", 8), ("allocate", "D", 12))


def check_all_or_nothing(answer: Callable) -> None:
    """What does not fit is refused and changes nothing: what fits can still come."""
    Play(answer, 2, 4).run(("allocate", "A", 9), ("allocate", "B", 8))
    Play(answer, 2, 4).run(("allocate", "A", 5), ("allocate", "B", 1))
    Play(answer, 4, 4).run(("allocate", "A", 5), ("allocate", "B", 9), ("allocate", "B", 8), ("allocate", "C", 1))
    Play(answer, 6, 1).run(("allocate", "A", 4), ("allocate", "A", 1), ("allocate", "B", 3), ("allocate", "B", 2))


def check_free(answer: Callable) -> None:
    """Blocks come back, once, and can be taken again."""
    Play(answer, 4, 4).run(("allocate", "A", 5), ("free", "A"), ("allocate", "A", 16))
    Play(answer, 4, 4).run(("allocate", "A", 5), ("allocate", "B", 4), ("free", "A"), ("allocate", "C", 9))
    Play(answer, 4, 4).run(("allocate", "A", 4), ("free", "A"), ("free", "A"), ("allocate", "B", 16))
    Play(answer, 4, 4).run(("free", "A"), ("allocate", "A", 1))
    turns = [
        ("allocate", "A", 9),
        ("allocate", "B", 4),
        ("free", "A"),
        ("allocate", "C", 12),
        ("free", "B"),
        ("free", "C"),
    ]
    Play(answer, 4, 4).run(*turns * 3)


def check_next_block(answer: Callable, next_block: str = "oldest") -> None:
    """Which of the free blocks is taken: "oldest" (free for the longest time), "newest" or "lowest" (number)."""
    ones = [("allocate", name, 1) for name in "DEFGH"]
    stories = [
        [("allocate", "A", 1), ("allocate", "B", 1)],
        [("allocate", "A", 9)],
        [("allocate", "A", 4), ("allocate", "B", 4), ("free", "A"), ("free", "B"), *ones],
        [("allocate", "A", 4), ("allocate", "B", 4), ("free", "B"), ("free", "A"), *ones],
        [("allocate", "A", 5), ("allocate", "B", 8), ("free", "A"), *ones[:3]],
        [("allocate", "A", 9), ("allocate", "B", 8), ("free", "B"), ("allocate", "C", 4), ("free", "A"), *ones],
    ]
    for story in stories:
        play, free = Play(answer, 6, 4), list(range(6))
        for kind, name, *tokens in story:
            table = play.tables.get(name, [])
            play.do(kind, name, *tokens)
            if kind == "free":
                free += reversed(table)
                continue
            for block in play.tables[name]:
                _same_block(play, block, free, next_block)


def _same_block(play: Play, block: int, free: list[int], next_block: str) -> None:
    right, text = NEXT_BLOCKS[next_block](free), told(play.story)
    if block != right:
        said = f"free were {free}, the longest free first, and {block} was taken; the rule is {next_block!r}"
        hint = "" if block in free else "; a table is given back from its end"
        raise CheckFailed(f"{play.told}: {text}: {said}{hint}", text)
    free.remove(block)


def check_append(answer: Callable) -> None:
    """One token more: a new block just when all are full, and where the token lies."""
    for size in (4, 1, 3):
        for tokens in (1, size - 1, size, size + 1, 2 * size - 1, 2 * size):
            if tokens:
                Play(answer, 6, size).run(("allocate", "A", tokens), *[("append", "A")] * (size + 2))
    Play(answer, 8, 4).run(("allocate", "A", 3), ("allocate", "B", 4), *[("append", "A"), ("append", "B")] * 6)
    last = [("allocate", "A", 3), ("allocate", "B", 4), ("append", "A"), ("append", "A"), ("append", "B")]
    Play(answer, 2, 4).run(*last, ("free", "B"), ("append", "A"), ("append", "A"))
    Play(answer, 3, 2).run(("allocate", "A", 1), *[("append", "A")] * 7, ("free", "A"), ("allocate", "B", 6))


def check_sharing(answer: Callable, copy: str = "on_write") -> None:
    """A fork shares blocks; each owner leaves when it likes, and the last one frees them."""
    six, whole = ("allocate", "A", 6), ("allocate", "A", 8)
    stories = [
        [whole, ("fork", "A", "B", 8)],
        [whole, ("fork", "A", "B", 4)],
        [whole, ("fork", "A", "B", 8), ("free", "B"), ("free", "A")],
        [whole, ("fork", "A", "B", 8), ("free", "A"), ("allocate", "C", 8), ("free", "B")],
        [whole, ("fork", "A", "B", 8), ("append", "A"), ("append", "B"), ("free", "A"), ("append", "B"), ("free", "B")],
        [six, ("fork", "A", "B", 6)],
        [six, ("fork", "A", "B", 5), ("free", "A"), ("free", "B"), ("allocate", "C", 16)],
        [six, ("fork", "A", "B", 6), ("fork", "B", "C", 3), ("free", "B"), ("free", "A"), ("free", "C"), ("free", "C")],
        [six, ("fork", "A", "B", 4), ("fork", "A", "B", 4), ("fork", "C", "D", 4)],
    ]
    for story in stories:
        Play(answer, 5, 4, copy).run(*story)


def check_copy(answer: Callable, copy: str = "on_write") -> None:
    """A block with two owners is never written: who copies it, when, and what if there is no room for the copy."""
    forked = [("allocate", "A", 6), ("fork", "A", "B", 6)]
    stories = [
        (6, [*forked, ("append", "B"), ("append", "A"), ("append", "B")]),
        (6, [*forked, ("append", "A"), ("append", "B")]),
        (6, [*forked, ("free", "A"), ("append", "B")]),
        (6, [*forked, ("append", "B"), ("free", "B"), ("append", "A"), ("free", "A")]),
        (6, [("allocate", "A", 7), ("fork", "A", "B", 5), ("append", "B"), ("append", "A")]),
        (6, [("allocate", "A", 8), ("fork", "A", "B", 8), ("append", "B"), ("append", "A"), ("append", "B")]),
        (6, [("allocate", "A", 8), ("fork", "A", "B", 6), ("append", "B"), ("append", "A")]),
        (7, [*forked, ("fork", "A", "C", 6), ("append", "A"), ("append", "C"), ("append", "B")]),
        (2, [*forked, ("append", "B"), ("append", "A"), ("free", "A"), ("append", "B")]),
        (2, [*forked, ("append", "A"), ("free", "B"), ("append", "A")]),
        (3, [("allocate", "A", 6), ("allocate", "C", 4), ("fork", "A", "B", 5), ("free", "C"), ("fork", "A", "B", 5)]),
    ]
    for num_blocks, story in stories:
        Play(answer, num_blocks, 4, copy).run(*story)


def check_everything(answer: Callable, copy: str = "on_write", runs: int = 12) -> None:
    """Random operations on pools that are too small for them. A failure is told by the shortest story found."""
    for num_blocks, size in ((6, 4), (9, 3), (12, 1), (24, 2)):
        for seed in range(runs):
            play, rng = Play(answer, num_blocks, size, copy), Random(seed)
            failed: CheckFailed | None = None
            try:
                for _ in range(60):
                    play.do(*_any_operation(play, rng))
                play.run(*(("free", name) for name in sorted(play.wrote)))
            except CheckFailed as raised:
                failed = raised
            if failed:
                raise _shortest(failed, play.story, partial(Play, answer, num_blocks, size, copy))


def _any_operation(play: Play, rng: Random) -> tuple:
    names, size = sorted(play.wrote), play.size
    kind = rng.choice(["allocate", "append", "append", "append", "fork", "fork", "free"])
    newcomer = next(name for name in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if name not in play.wrote)
    if kind == "allocate" or not names or len(names) > 8:
        return ("free", names[0]) if len(names) > 8 else ("allocate", newcomer, rng.randint(1, 3 * size))
    name = rng.choice(names)
    return ("fork", name, newcomer, rng.randint(1, len(play.wrote[name]))) if kind == "fork" else (kind, name)


def _shortest(failed: CheckFailed, story: list[tuple], fresh: Callable[[], Play]) -> CheckFailed:
    """The failure of a story from which nothing can be left out."""
    if isinstance(failed, NotYet):
        return failed
    place = 0
    while place < len(story):
        shorter, play = story[:place] + story[place + 1 :], fresh()
        try:
            for operation in shorter:
                if play.makes_sense(*operation):
                    play.do(*operation)
        except CheckFailed as raised:
            failed, story, place = raised, play.story, 0
        else:
            place += 1
    return failed
