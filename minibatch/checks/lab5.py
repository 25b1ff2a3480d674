"""Checks of lab 5: who gives way, and what that costs. The others are in `lab5_door.py` and `lab5_service.py`."""

from collections.abc import Callable

from minibatch.checks.base import expect, need
from minibatch.checks.lab5_door import ask, check_estimates, check_room_kept, check_room_used, made, pair, workload
from minibatch.checks.lab5_service import check_other_days, check_promise
from minibatch.checks.serving import serve
from minibatch.memory import PagedMemory
from minibatch.request import Request, SamplingParams, Sequence
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.evict import Evict
from minibatch.simulate import ScriptedExecutor

__all__ = [
    "check_estimates",
    "check_everybody_ends",
    "check_other_days",
    "check_promise",
    "check_recomputed",
    "check_room_kept",
    "check_room_used",
    "check_swapped",
    "check_victim",
]

# ---- 1. who gives way ----

_CROWDS = [  # (order, written, prompt, priority) of each, in order of admission
    [(0, 9, 8, 0)],
    [(0, 1, 40, 1), (1, 5, 8, 0)],
    [(0, 9, 8, 0), (1, 2, 8, 1), (2, 5, 8, 0)],
    [(0, 9, 8, 0), (1, 2, 4, 1), (2, 60, 200, 0)],
    [(0, 9, 8, 0), (1, 3, 8, 1), (2, 3, 40, 0)],
    [(0, 9, 8, 0), (1, 3, 40, 0), (2, 3, 8, 1), (3, 6, 60, 0)],
    [(0, 7, 8, 0), (1, 3, 8, 1), (2, 3, 8, 1), (3, 7, 8, 0)],
    [(2, 5, 8, 0), (0, 9, 8, 1), (3, 4, 8, 0), (1, 1, 8, 1)],
    [(3, 1, 8, 2), (0, 1, 90, 2), (1, 4, 8, 1)],
    [(1, 2, 8, 1), (3, 2, 8, 1), (0, 2, 8, 0), (2, 2, 8, 1)],
]

_NEWER = "the newest is the one with the highest order, wherever it stands in the list"
_STEPS_OF_RULE = {  # what a rule looks at first, then among equals; and what to say to whoever does not
    "fewest_outputs": (
        (lambda one: -len(one.output), "somebody else who may go has written fewer tokens"),
        (lambda one: len(one.request.prompt), "somebody else has written as few; what decides among equals?"),
        (lambda one: one.order, f"somebody else has written as few and asked as much; {_NEWER}"),
    ),
    "newest": ((lambda one: one.order, f"somebody else who may go came later; {_NEWER}"),),
    "lowest_priority": (
        (lambda one: one.request.priority, "somebody else who may go is less important: the higher number"),
        (lambda one: one.order, f"somebody else is as unimportant, and newer; {_NEWER}"),
    ),
}


def check_victim(victim: type, rule: str = "fewest_outputs") -> None:
    """`victim().choose(running)`: who gives way by the rule; never the oldest while anybody else runs."""
    for crowd in _CROWDS:
        running = [_running(*one) for one in crowd]
        told = f"running {', '.join(map(_in_words, running))}: choose()"
        got, want = _choose(made(victim), running, told), Evict(rule).choose(running)
        why = next((why for key, why in _STEPS_OF_RULE[rule] if key(got) < key(want)), "that is not the rule")
        need(got is want, f"{told} returned {got.request_id}: {why}")


_THREE = [(0.0, 8, 9, 9)] * 3  # (arrival, prompt, limit, written): each ends with 16 positions, 4 blocks
_EIGHT = [(float(i), 3 + 5 * i % 13, 20, 20) for i in range(8)]
_TIGHT = [
    ("3 requests, prompts of 8 and answers of 9, 6 blocks of 4", _THREE, 6, 3),
    ("the same on 4 blocks", _THREE, 4, 3),
    ("8 requests with prompts of 3 to 15 and answers of 20, 10 blocks of 4", _EIGHT, 10, 5),
]


def check_everybody_ends(victim: type) -> None:
    """Runs in pools in which few fit at once: everybody ends, and the oldest is never thrown out by another."""
    for told, lives, blocks, slots in _TIGHT:
        requests, script = workload(lives)
        scheduler = IterationScheduler(slots, PagedMemory(blocks, 4), evict=_Asked(victim))
        serve(scheduler, requests, ScriptedExecutor(script), told, most_steps=400)


class _Asked:
    """Stands where `Evict` stands, asks the reader's rule, and looks at what it says."""

    swap = False

    def __init__(self, victim: type):
        self.victim = made(victim)

    def choose(self, running: list[Sequence]) -> Sequence:
        """As the reader's."""
        names = ", ".join(f"{one.request_id} (order {one.order})" for one in running)
        return _choose(self.victim, running, f"running {names}: choose()")


def _choose(victim: object, running: list[Sequence], told: str) -> Sequence:
    got = ask(lambda: victim.choose(list(running)), told)
    known = any(got is one for one in running)
    need(known, f"{told} returned {str(got)[:40]!r}: return one of the sequences in running")
    oldest = min(running, key=lambda one: one.order)
    fair = got is not oldest or len(running) == 1
    need(fair, f"{told} returned {got.request_id}, the oldest, who never gives way while anybody else runs")
    return got


def _running(order: int, written: int, prompt: int, priority: int) -> Sequence:
    request = Request("ABCD"[order], (5,) * prompt, SamplingParams(100), priority=priority)
    blocks = list(range(-(-(prompt + written) // 4)))
    return Sequence(request, output=[7] * written, order=order, slot=order, block_table=blocks)


def _in_words(one: Sequence) -> str:
    prompt, priority = len(one.request.prompt), one.request.priority
    return f"{one.request_id} (order {one.order}, wrote {len(one.output)}, prompt {prompt}, priority {priority})"


# ---- 2. what it costs ----

_PRICES = [(8, 1, 4), (8, 2, 4), (8, 5, 4), (100, 1, 16), (100, 13, 16), (100, 14, 16), (1, 40, 16), (161, 300, 16)]


def check_recomputed(price: Callable) -> None:
    """`price(prompt, written, block_size, swap=False)`: (tokens computed again, blocks moved)."""
    for prompt, written, size in _PRICES:
        expect(price, prompt, written, size, False, want=(prompt + written - 1, 0), hint=_recompute_hint)


def _recompute_hint(got: object, prompt: int, written: int, size: int, swap: bool) -> str:
    if not pair(got):
        return "return two whole numbers: tokens computed again, blocks moved"
    if got[1]:
        return "a victim that is recomputed is thrown away; nothing of it is moved"
    wrong = {
        prompt: "its answer so far is computed again as well",
        prompt + written: "its last token was drawn and never computed, so that would not be *again*",
        written: "its prompt is computed again as well",
        0: "K and V are gone; which tokens had been computed?",
    }
    return wrong.get(got[0], "which of its tokens had been computed before?")


def check_swapped(price: Callable) -> None:
    """`price(prompt, written, block_size, swap=True)`: (tokens computed again, blocks moved, out and back)."""
    for prompt, written, size in _PRICES:
        blocks = -(-(prompt + written - 1) // size)
        expect(price, prompt, written, size, True, want=(0, 2 * blocks), hint=_swap_hint)


def _swap_hint(got: object, prompt: int, written: int, size: int, swap: bool) -> str:
    if not pair(got):
        return "return two whole numbers: tokens computed again, blocks moved"
    stored = prompt + written - 1
    if got[0]:
        return "what comes back as it was is not computed again"
    wrong = {
        -(-stored // size): "what goes out comes back later",
        2 * (stored // size): "a block that is not full is moved too",
        2 * (-(-(stored + 1) // size)): "its last token has no K and V yet; nothing is stored of it",
        2 * stored: "those are positions; memory moves in blocks",
    }
    return wrong.get(got[1], "how many blocks hold what it has stored, and how often do they travel?")
