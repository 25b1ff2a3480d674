"""Right and wrong answers to the exercises of notebook 09. Read by tests/test_checks.py, which says the format."""

from dataclasses import dataclass

from minibatch.checks.nb09 import check_chat_budget, check_my_scheduler, check_two_faced_load, check_workload
from minibatch.memory import PagedMemory
from minibatch.schedulers import IterationScheduler, StaticBatcher
from minibatch.schedulers.join import FirstComeFirstServed
from minibatch.schedulers.mix import Chunked
from minibatch.schedulers.reserve import NextChunk
from minibatch.schedulers.systems import system

NOTEBOOK = "09_operating_limit"


@dataclass(frozen=True)
class Ranked(FirstComeFirstServed):
    """By any rule."""

    rule: object

    def rank(self, sequence):
        return self.rule(sequence)


def ranked(rule, budget=1024, times=1):
    """Iteration-level under a join rule, with `times` the memory of the card."""

    def build(num_positions, max_model_len):
        memory = PagedMemory(times * num_positions // 16, 16, events=False)
        return IterationScheduler(256, memory, join=Ranked(rule), mix=Chunked(budget), reserve=NextChunk())

    return build


def of_system(name, **knobs):
    """A row of the table as it stands."""
    return lambda num_positions, max_model_len: system(name).build(num_positions, max_model_len, **knobs)


def mixed(tenfold):
    """Long answers spread over all batches, which is what matters; not each in front."""
    if not tenfold:
        return [(1, 1)] * 100
    return [(8, 400) if i % 32 == 17 else (8, 1) for i in range(400)]


def by_length(tenfold):
    """The same requests sorted: then all long ones share a batch."""
    return sorted(mixed(tenfold), reverse=True)


TABLE = {
    "chat_budget": {
        "check": check_chat_budget,
        "right": [lambda: 576, lambda: 640],
        "wrong": [
            (lambda: 256, "TTFT"),
            (lambda: 64, "TTFT"),
            (lambda: 2048, "ITL"),  # the default
            (lambda: 8192, "ITL"),
            (lambda: 0, "whole number"),
            (lambda: 512.5, "whole number"),
            (lambda: 10**9, "whole number"),
        ],
    },
    "two_faced_load": {
        "check": check_two_faced_load,
        "right": [lambda: 1, lambda: 0.6],
        "wrong": [
            (lambda: 0.1, "nobody waits long"),
            (lambda: 0.3, "nobody waits long"),
            (lambda: 5.0, "gives it away"),
            (lambda: 100, "gives it away"),
            (lambda: 0, "requests per second"),
            (lambda: -1.0, "requests per second"),
            (lambda: float("inf"), "requests per second"),
        ],
    },
    "workload": {
        "check": check_workload,
        "right": [mixed, lambda tenfold: [(16, 300), *[(16, 1)] * 31] * 12 if tenfold else [(100, 30)] * 96],
        "wrong": [
            (lambda tenfold: [(64, 64)] * 64, "not 10"),
            (lambda tenfold: [(64, 64), (64, 1)] * 64, "slot die"),
            (by_length, "not 10"),
            (lambda tenfold: mixed(tenfold)[:200], "not 10"),  # too few batches
            (lambda tenfold: [(64, 64)] * 32, "requests"),
            (lambda tenfold: [(64, 64)] * 1000, "requests"),
            (lambda tenfold: [(64, 5000)] * 64, "1 to 400"),
            (lambda tenfold: [(64, 0)] * 64, "1 to 400"),
            (lambda tenfold: [64] * 64, "(prompt_tokens, output_tokens)"),
            (lambda tenfold: [(64.0, 64.0)] * 64, "whole"),
        ],
    },
    "my_scheduler": {
        "check": check_my_scheduler,
        "right": [
            ranked(lambda one: (len(one.request.prompt) > 2000, one.order)),  # two queues
            ranked(lambda one: (-one.order,)),  # last come, first served
        ],
        "wrong": [
            (of_system("vllm-v1"), "1.00 times"),
            (of_system("vllm-v1", token_budget=512), "1.5 times is asked for"),
            (of_system("vllm-v0"), "1.5 times is asked for"),
            (of_system("tgi", max_open=4), "did not serve"),
            (ranked(lambda one: (-len(one.request.prompt), one.order)), "1.5 times is asked for"),
            (ranked(lambda one: (len(one.request.prompt),), times=2), "the card for"),
            (ranked(lambda one: (one.no_such_field,)), "stopped with AttributeError"),
            (lambda num_positions, max_model_len: StaticBatcher, "return a scheduler"),
        ],
    },
}
