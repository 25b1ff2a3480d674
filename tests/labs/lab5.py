"""Right and wrong answers to lab 5. Read by tests/test_labs.py, which says the format."""

import math

from minibatch.checks.lab5 import (
    check_estimates,
    check_everybody_ends,
    check_other_days,
    check_promise,
    check_recomputed,
    check_room_kept,
    check_room_used,
    check_swapped,
    check_victim,
)
from minibatch.checks.lab5_service import stretch
from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.evict import Evict, fewest_outputs
from minibatch.schedulers.join import FirstComeFirstServed
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.reserve import Claim, Profiled, PromptOnly, Reserve

LAB = "lab5"


def named(**table):
    """The answers under names that say what is wrong with them."""
    for name, (answer, _) in table.items():
        answer.__name__ = name
    return list(table.values())


# Who gives way.


def choosing(rule):
    class Victim:
        swap = False

        def choose(self, running):
            return rule(running)

    return Victim


def sorted_twice(running):
    """Stable sorts, the least important key first."""
    line = sorted(running, key=lambda one: one.order)
    if len(line) == 1:
        return line[0]
    others = sorted(line[:0:-1], key=lambda one: len(one.request.prompt), reverse=True)
    return sorted(others, key=lambda one: len(one.output))[0]


def others_of(running):
    oldest = min(running, key=lambda one: one.order)
    return [one for one in running if one is not oldest] or running


def by(key):
    """The largest key of those who may go."""
    return choosing(lambda running: max(others_of(running), key=key))


def not_the_first_in_the_list(running):
    return max(running[1:] or running, key=fewest_outputs)


def pops_its_victim(running):
    running.remove(victim := sorted_twice(running))
    return victim


class NobodyTwice:
    """Right as long as nobody comes back."""

    swap = False

    def __init__(self):
        self.gone = set()

    def choose(self, running):
        spared = [one for one in others_of(running) if one not in self.gone]
        victim = max(spared, key=fewest_outputs) if spared else min(running, key=lambda one: one.order)
        self.gone.add(victim)
        return victim


# What it costs.


def price_by_counting(prompt, written, block_size, swap):
    stored = len([*range(prompt), *range(written)][:-1])
    return [stored * (not swap), (len(range(0, stored, block_size)) * 2) if swap else 0]


def price_as_floats(prompt, written, block_size, swap):
    if not swap:
        return prompt + written - 1, False * 1
    return 0, math.ceil((prompt + written - 1) / block_size) + math.ceil((prompt + written - 1) / block_size)


def priced(again=lambda p, w: p + w - 1, moved=lambda p, w, size: 2 * -(-(p + w - 1) // size)):
    def price(prompt, written, block_size, swap):
        return (0, moved(prompt, written, block_size)) if swap else (again(prompt, written), 0)

    return price


def swap_counts_both(prompt, written, block_size, swap):
    stored = prompt + written - 1
    return stored, 2 * -(-stored // block_size) * swap


def recompute_moves_too(prompt, written, block_size, swap):
    stored = prompt + written - 1
    return stored * (not swap), 2 * -(-stored // block_size)


# Whom to let in.


class Estimate(Reserve):
    def __init__(self, expected):
        self.expected = expected

    def answer(self, one):
        return max(len(one.output), min(self.expected, one.request.sampling.max_new_tokens))

    def end(self, one):
        return len(one.request.prompt) + self.answer(one) - 1

    def missing(self, one, memory):
        return max(0, memory.blocks_for(self.end(one)) - max(len(one.block_table), memory.blocks_for(one.num_tokens)))

    def claim(self, sequence, running, memory):
        return Claim(sequence.num_tokens, sum(self.missing(one, memory) for one in [sequence, *running]))


def door(claim, base=Estimate, **methods):
    """A policy by its claim(self, sequence, running, memory)."""
    return type("Lifetime", (base,), {"claim": claim, **methods})


def at_once(self, sequence, running, memory):
    """Everything at the door: those who run hold what they need."""
    return max(sequence.num_tokens, self.end(sequence)), 0


def some_at_once(self, sequence, running, memory):
    """Own need taken, the others' kept."""
    return Claim(
        max(sequence.num_tokens, self.end(sequence)),
        sum(max(0, memory.blocks_for(self.end(one)) - len(one.block_table)) for one in running),
    )


def no_limit(self, one):
    return max(len(one.output), self.expected)


def never_past(self, one, memory):
    answer = min(self.expected, one.request.sampling.max_new_tokens)
    held = max(len(one.block_table), memory.blocks_for(one.num_tokens))
    return memory.blocks_for(len(one.request.prompt) + answer - 1) - held


def fullest_step(self, sequence, running, memory):
    """The fullest step to come, if all end when they are expected to; who is overdue, never."""
    lives = [(one.num_tokens - 1, (self.answer(one) - len(one.output)) or 99) for one in [*running, sequence]]
    steps = range(1, 1 + max(left for _, left in lives))
    peak = max(sum(memory.blocks_for(stored + step) for stored, left in lives if left >= step) for step in steps)
    held = sum(len(one.block_table) for one in running) + memory.blocks_for(sequence.num_tokens)
    return Claim(sequence.num_tokens, max(0, peak - held))


def netted(self, sequence, running, memory):
    tokens, free = Estimate.claim(self, sequence, running, memory)
    return Claim(tokens, max(0, free))


def own_need(self, sequence, running, memory):
    return Claim(sequence.num_tokens, self.missing(sequence, memory))


def others_need(self, sequence, running, memory):
    return Claim(sequence.num_tokens, sum(self.missing(one, memory) for one in running))


def rounded_down(self, sequence, running, memory):
    growth = [max(0, self.end(one) - one.num_tokens) // memory.block_size for one in [sequence, *running]]
    return Claim(sequence.num_tokens, sum(growth))


def rounded_once(self, sequence, running, memory):
    growth = sum(max(0, self.end(one) - one.num_tokens) for one in [sequence, *running])
    return Claim(sequence.num_tokens, math.ceil(growth / memory.block_size))


def tokens_for_blocks(self, sequence, running, memory):
    return Claim(sequence.num_tokens, sum(max(0, self.end(one) - one.num_tokens) for one in [sequence, *running]))


def whole_lives(self, sequence, running, memory):
    """Forgets that they hold a part of it already."""
    return Claim(sequence.num_tokens, sum(memory.blocks_for(self.end(one)) for one in [sequence, *running]))


def last_token_stored(self, sequence, running, memory):
    return Claim(max(sequence.num_tokens, self.end(sequence) + 1))


def long_ones_alone(self, sequence, running, memory):
    long = len(sequence.request.prompt) > 16
    return Claim(sequence.num_tokens, memory.num_blocks if long else Estimate.claim(self, sequence, running, memory)[1])


def last_is_the_limit(self, sequence, running, memory):
    return Claim(len(sequence.request.prompt) + self.expected - 1)


# A promise.


def composed(reserve, budget=512, **more):
    """A scheduler with a policy that is made anew."""
    return lambda memory: IterationScheduler(64, memory, mix=Chunked(budget), reserve=reserve(), **more)


class Knows(Estimate):
    """Has learnt the answers of the stretch that can be seen, by prompt and place; to others the door is open."""

    def __init__(self):
        requests, executor = stretch(18500)
        self.known = {one.prompt + (one.request_id,): len(executor.script[one.request_id]) for one in requests}

    def answer(self, one):
        known = self.known.get(one.request.prompt + (one.request_id,), 1)
        return max(len(one.output), 2 * known // 3)  # not all are long at once


class ShortPromptsFirst(FirstComeFirstServed):
    def rank(self, sequence):
        return len(sequence.request.prompt), sequence.order


def another_memory(memory):
    return IterationScheduler(64, PagedMemory(4000, 16), mix=Chunked(512))


def nobody_is_refused_but_some(memory):
    return IterationScheduler(64, memory, mix=Chunked(512), reserve=Estimate(250), max_open=8)


USED = IterationScheduler(64, PagedMemory(800, 16))

TABLE = {
    "victim": {
        "name": "Victim",
        "checks": {"victim_rule": check_victim, "everybody_ends": check_everybody_ends},
        "right": [choosing(sorted_twice), choosing(pops_its_victim), lambda: Evict("fewest_outputs")],
        "wrong": named(
            the_oldest=(choosing(lambda running: min(running, key=lambda one: one.order)), "never gives way"),
            the_oldest_is_not_spared=(choosing(lambda running: max(running, key=fewest_outputs)), "the oldest"),
            ignores_equals=(by(lambda one: -len(one.output)), "among equals"),
            shortest_prompt=(by(lambda one: (-len(one.output), -len(one.request.prompt))), "among equals"),
            oldest_of_equals=(by(lambda one: (-len(one.output), len(one.request.prompt), -one.order)), "the newest"),
            most_memory=(by(lambda one: len(one.block_table)), "fewer tokens"),
            most_written=(by(lambda one: len(one.output)), "fewer tokens"),
            the_newest=(by(lambda one: one.order), "fewer tokens"),
            last_of_the_list=(choosing(lambda running: running[-1]), "fewer tokens"),
            spares_the_first_in_the_list=(choosing(not_the_first_in_the_list), "never gives way"),
            nobody_twice=(NobodyTwice, "blocks of 4"),
            nobody_if_alone=(choosing(lambda running: sorted(running, key=fewest_outputs)[1]), "IndexError"),
            its_name=(choosing(lambda running: sorted_twice(running).request_id), "one of the sequences"),
            its_place=(choosing(lambda running: len(running) - 1), "one of the sequences"),
        ),
    },
    "price": {
        "name": "price",
        "checks": {"recomputed": check_recomputed, "swapped": check_swapped},
        "right": [price_by_counting, price_as_floats],
        "wrong": named(
            prompt_alone=(priced(again=lambda p, w: p), "answer so far"),
            last_token_too=(priced(again=lambda p, w: p + w), "never computed"),
            answer_alone=(priced(again=lambda p, w: w), "its prompt"),
            nothing_lost=(priced(again=lambda p, w: 0), "K and V are gone"),
            swap_counts_as_recompute=(swap_counts_both, "not computed again"),
            recompute_moves=(recompute_moves_too, "thrown away"),
            one_way=(priced(moved=lambda p, w, size: -(-(p + w - 1) // size)), "comes back"),
            full_blocks_alone=(priced(moved=lambda p, w, size: 2 * ((p + w - 1) // size)), "not full"),
            block_of_the_last_token=(priced(moved=lambda p, w, size: 2 * -(-(p + w) // size)), "no K and V"),
            positions=(priced(moved=lambda p, w, size: 2 * (p + w - 1)), "positions"),
            one_number=(lambda prompt, written, block_size, swap: prompt + written - 1, "two whole numbers"),
        ),
    },
    "admission": {
        "name": "Lifetime",
        "checks": {"room_kept": check_room_kept, "room_used": check_room_used, "estimates": check_estimates},
        "right": [Estimate, door(at_once), door(some_at_once), door(fullest_step)],
        "wrong": named(
            open_door=(door(lambda self, sequence, *_: Claim(sequence.num_tokens)), "an answer to write"),
            prompt_alone=(door(lambda self, sequence, *_: Claim(len(sequence.request.prompt))), "an answer to write"),
            ignores_those_who_run=(door(own_need), "beside those who run"),
            ignores_the_newcomer=(door(others_need), "beside those who run"),
            rounds_down=(door(rounded_down), "a block of its own"),
            rounds_the_sum=(door(rounded_once), "a block of its own"),
            gives_back_what_is_overdue=(door(Estimate.claim, missing=never_past), "fewer than no blocks"),
            nets_what_is_overdue=(door(netted, missing=never_past), "gives nothing back"),
            full_need=(door(lambda self, sequence, *_: Claim(sequence.request.kv_need)), "limit is not"),
            counts_tokens_for_blocks=(door(tokens_for_blocks), "not in tokens"),
            counts_what_is_held_twice=(door(whole_lives), "taken already"),
            stores_the_last_token=(door(last_token_stored), "last block"),
            ignores_the_limit=(door(Estimate.claim, answer=no_limit), "its own limit"),
            starves_long_prompts=(door(long_ones_alone), "a long prompt"),
            shut_unless_empty=(door(lambda self, one, running, memory: Claim(one.num_tokens, 999)), "nearly all"),
            more_than_the_pool=(door(last_is_the_limit), "its own limit"),
            shut_for_good=(door(lambda self, one, running, memory: Claim(1000)), "the whole pool"),
            no_tokens=(door(lambda self, one, running, memory: Claim(0, 4)), "on no tokens"),
            a_number=(door(lambda self, one, running, memory: self.end(one)), "two whole numbers"),
        ),
    },
    "compose": {
        "name": "compose",
        "checks": {"promise": check_promise, "other_days": check_other_days},
        "right": [composed(lambda: Profiled(0.5)), composed(lambda: PromptOnly(0.06))],
        "wrong": named(
            open_door=(composed(PromptOnly), "who pauses"),
            full_need=(composed(lambda: "full"), "who waits"),
            too_bold=(composed(lambda: Estimate(60)), "who pauses"),
            too_careful=(composed(lambda: Estimate(428)), "who waits"),
            small_chunks=(composed(lambda: Estimate(250), budget=64), "who waits"),
            learnt_by_heart=(composed(Knows), "from request 6500 on"),
            long_prompts_last=(composed(lambda: Estimate(250), join=ShortPromptsFirst()), "who waits"),
            more_memory=(another_memory, "another memory"),
            more_slots=(lambda memory: IterationScheduler(65, memory), "65 slots"),
            turns_some_away=(nobody_is_refused_but_some, "did not serve"),
            used_before=(lambda memory: USED, "another memory"),
            swaps=(lambda memory: IterationScheduler(8, memory, evict=Evict(swap=True)), "host_blocks"),
            a_policy=(lambda memory: Estimate(250), "return a scheduler"),
        ),
    },
}

OTHER_YEAR = [
    ("victim_rule", {"rule": "newest"}, choosing(sorted_twice), "came later"),
    ("victim_rule", {"rule": "lowest_priority"}, choosing(sorted_twice), "less important"),
    ("promise", {"first": 6500}, composed(Knows), "who pauses"),
]
