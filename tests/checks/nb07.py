"""Right and wrong answers to the exercises of notebook 07. Read by tests/test_checks.py, which says the format."""

from minibatch import Engine, Request, SamplingParams
from minibatch.checks.nb07 import check_claim, check_peak_need, check_victims
from minibatch.memory import PagedMemory
from minibatch.request import Sequence
from minibatch.schedulers import IterationScheduler
from minibatch.schedulers.evict import Evict
from minibatch.schedulers.reserve import PromptOnly
from minibatch.simulate import ScriptedExecutor

NOTEBOOK = "07_preemption_and_admission"


def victims_by_the_package(running, missing):
    """The package's own rule is a right answer too."""
    blocks, sequences, gone = {}, [], []
    for order, outputs, prompt, held in running:
        request = Request(str(order), (1,) * prompt, SamplingParams(100))
        sequences.append(Sequence(request, output=[7] * outputs, order=order))
        blocks[order] = held
    while missing > 0 and len(sequences) > 1:
        victim = Evict("fewest_outputs").choose(sequences)
        sequences.remove(victim)
        gone.append(victim.order)
        missing -= blocks[victim.order]
    return gone


def victims_by(key, oldest_too=False, greedy=True):
    """Others first to last by `key`, until enough is free."""

    def function(running, missing):
        gone, oldest = [], min(running)
        for one in sorted(running, key=key):
            if (oldest_too or one is not oldest) and (missing > 0 or not greedy):
                gone.append(one[0])
                missing -= one[3]
        return gone

    return function


def sglang(one):
    return (one[1], -one[2], -one[0])


def walk(sequences, give_back_first=False):
    """Step by step, right with the default."""
    live, most = [list(one) for one in sequences], 0
    while live:
        live = [[stored + 1, left - 1] for stored, left in live]
        counted = [one for one in live if one[1] > 0] if give_back_first else live
        most = max(most, sum(stored for stored, _ in counted))
        live = [one for one in live if one[1] > 0]
    return most


def peak_by_the_engine(sequences):
    """The package's own engine, with blocks of one position."""
    requests = [
        Request(f"{i}", (1,) * (stored + 1), SamplingParams(left)) for i, (stored, left) in enumerate(sequences)
    ]
    memory = PagedMemory(10_000, block_size=1)
    trace = Engine(IterationScheduler(len(requests), memory), ScriptedExecutor()).run(requests)
    return max(step.memory.used for step in trace.steps)


def at_the_door(sequence, running, memory):
    """The context free, and the rest of all others; one block taken."""
    rest = sum(memory.blocks_for(one.num_tokens) - len(one.block_table) for one in running)
    whole = memory.blocks_for(sequence.num_tokens)
    return 1, max(0, rest) + whole - 1


def gate_for_itself(sequence, running, memory):
    """The first half of the bug mended."""
    return 8, memory.blocks_for(sequence.num_tokens) - 2


TABLE = {
    "victims": {
        "check": check_victims,
        "right": [victims_by_the_package, victims_by(sglang)],
        "wrong": [
            (victims_by(sglang, oldest_too=True), "oldest"),
            (victims_by(sglang, greedy=False), "one fewer"),
            (lambda running, missing: victims_by(sglang)(running, missing)[:1], "still missing"),
            (victims_by(lambda one: -one[0]), "least goes first"),  # vLLM's rule
            (victims_by(lambda one: (one[1], one[2], -one[0])), "among equals"),
            (victims_by(lambda one: (one[1], -one[2], one[0])), "among equals"),
            (victims_by(lambda one: (-one[1], -one[2], -one[0])), ""),
            (lambda running, missing: [one[0] for one in running[1:]], ""),
            (lambda running, missing: [], "still missing"),
            (lambda running, missing: len(victims_by(sglang)(running, missing)), "a list"),
            (lambda running, missing: [running.index(min(running)) + 100], "one of those who run"),
            (lambda running, missing: [1], ""),  # the first example
        ],
    },
    "peak_need": {
        "check": check_peak_need,
        "right": [walk, peak_by_the_engine],
        "wrong": [
            (lambda sequences: sum(s + n for s, n in sequences), "not all needs"),
            (lambda sequences: sum(s for s, _ in sequences), "now"),
            (lambda sequences: sum(s + 1 for s, _ in sequences), "next step"),
            (lambda sequences: max(s + n for s, n in sequences), "the others"),
            (lambda sequences: walk(sequences, give_back_first=True), "still holds"),
            (lambda sequences: walk(sequences) - len(sequences), ""),
            (lambda sequences: sum(s + min(n for _, n in sequences) for s, _ in sequences), ""),
            (lambda sequences: [walk(sequences)], "one number"),
            (lambda sequences: 15, ""),  # the first example
        ],
    },
    "claim": {
        "check": check_claim,
        "right": [at_the_door, PromptOnly().claim, lambda sequence, running, memory: [sequence.num_tokens, 0]],
        "wrong": [
            (lambda sequence, running, memory: (min(sequence.num_tokens, 8), 0), "first chunk"),
            (lambda sequence, running, memory: (1, 0), "first chunk"),
            (gate_for_itself, "entered before"),
            (lambda sequence, running, memory: (len(sequence.request.prompt), 0), "what it has written"),
            (lambda sequence, running, memory: (sequence.request.kv_need, 0), "too large"),
            (lambda sequence, running, memory: (sequence.num_tokens, 2), "too large"),
            (lambda sequence, running, memory: (sequence.num_tokens, memory.num_blocks), "too large"),
            (lambda sequence, running, memory: (0, 0), "no tokens"),
            (lambda sequence, running, memory: (sequence.num_tokens, -1), "whole numbers"),
            (lambda sequence, running, memory: (sequence.num_tokens / 1, 0), "whole numbers"),
            (lambda sequence, running, memory: sequence.num_tokens, "Claim(tokens, keep_free)"),
            (lambda sequence, running, memory: (sequence.num_tokens,), "Claim(tokens, keep_free)"),
        ],
    },
}
