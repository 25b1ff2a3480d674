"""Small numbers that the articles' claims are held against, computed on the spot: arithmetic, replays of examples."""

from minibatch.engine import Engine
from minibatch.memory import ContiguousMemory
from minibatch.memory.arithmetic import CARDS, GB, MODELS, kv_pool_bytes, sequences_that_fit, tokens_that_fit
from minibatch.request import Request, SamplingParams
from minibatch.schedulers import IterationScheduler, Scheduler, StaticBatcher
from minibatch.simulate.cards import Deployment
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.scripted import ScriptedExecutor
from minibatch.trace import Trace


def facts() -> dict[str, float]:
    """By name."""
    return _memory() | _steps() | _examples()


def _memory() -> dict[str, float]:
    """Of a 7B model on a card of 80 GB."""
    model, card = MODELS["Llama-2-7B"], CARDS["A100-80"]
    free, kept = kv_pool_bytes(model, card), kv_pool_bytes(model, card, usable=0.9)
    return {
        "GB free beside 7B": free / GB,
        "GB free if a tenth is kept back": kept / GB,
        "tokens beside 7B": tokens_that_fit(model, free),
        "sequences of 2,048 beside 7B": sequences_that_fit(model, free, 2048),
    }


def _steps() -> dict[str, float]:
    """Of decodes with 500 positions each, OPT-13B on an A100 of 40 GB."""
    cost = Roofline(Deployment("A100-40", "OPT-13B"))
    one, thirty = (cost.computing(n, 500 * n, 500 * n) for n in (1, 30))
    alone = (2048 * 2049) // 2
    peak = cost.token_seconds * cost.flops_share  # of one token at the full peak
    return {
        "step of 30 / step of 1": thirty / one,
        "share of peak, 30 decodes": 30 * peak / thirty,
        "prompt of 2,048 / step of 30": cost.computing(2048 + 30, 2048 + 15_000, alone + 15_000) / thirty,
    }


def _examples() -> dict[str, float]:
    """Article 1's batch of 20 and 900 tokens; article 3's A, B and C on two slots."""
    pair = _served(StaticBatcher, {"short": 20, "long": 900})
    example = {"A": 2, "B": 4, "C": 2}
    static, iteration = (_served(kind, example) for kind in (StaticBatcher, IterationScheduler))
    return {
        "dead slot-steps of 20 and 900": sum(len(step.dead) for step in pair.steps),
        "C ends, static": static.requests["C"].finished_at,
        "C ends, iteration": iteration.requests["C"].finished_at,
    }


def _served(kind: type[Scheduler], lengths: dict[str, int]) -> Trace:
    """On two slots, a second a step."""
    requests = [Request(name, (3,), SamplingParams(length)) for name, length in lengths.items()]
    return Engine(kind(2, ContiguousMemory(2048, 1024)), ScriptedExecutor()).run(requests)
