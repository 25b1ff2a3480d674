"""Where "10 to 20 times" comes from: slots refilled x memory freed x latency bound. Article 1, "o tamanho do ganho"."""

import math
from typing import NamedTuple

from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.rates import Rates, at_random, rate_within, saturated, unloaded
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.schedulers import DynamicBatcher, IterationScheduler, Scheduler
from minibatch.simulate.cards import Deployment
from minibatch.simulate.roofline import Roofline
from minibatch.workload import Planned, azure_trace, sharegpt_like, synthetic, uniform

FACTORS = ("slots_refilled", "memory_freed", "latency_bound")


class Setting(NamedTuple):
    """A model on a card, the longest request it takes, and what is asked of it."""

    card: str
    model: str
    longest: int  # tokens, prompt and answer: what a server must reserve that knows no better
    planned: list[Planned]


def settings(requests: int) -> dict[str, Setting]:
    """The vLLM paper's model and card for chat; a 7B model with the memory for long prompts for Azure's traces."""
    orca = synthetic(requests, prompt=uniform(32, 512), output=uniform(1, 128))
    return {
        "ShareGPT-like": Setting("A100-40", "OPT-13B", 2048, sharegpt_like(requests // 2)),
        "Orca's lengths": Setting("A100-40", "OPT-13B", 2048, orca),
        "Azure conversation": Setting("A100-80", "Llama-2-7B", 8192, _fitting("conv", requests // 2)),
        "Azure code": Setting("A100-80", "Llama-2-7B", 8192, _fitting("code", requests)),
    }


def _fitting(trace: str, requests: int) -> list[Planned]:
    return [one for one in azure_trace(trace) if one.prompt_tokens + one.output_tokens <= 8192][:requests]


def decomposition(requests: int = 500, seed: int = 0) -> Headline:
    """Three servers on the same memory, and what each step from one to the next is worth.

    1. Static: a batch of whoever waits, closed until all end; of as many as regions of the longest request fit, or of
       one, whichever serves more (where padding costs more than company brings, that is one).
    2. All these regions, refilled between any two steps: what is gained, saturated, are dead slots and padding.
    3. The same memory in blocks of 16: what is gained, saturated, is memory that was reserved and not used.
    4. Clients who may wait no longer than twice the time alone (median E2E / output token): what is gained is how much
       nearer to saturation the third may run than the first.

    The product is the gain in requests a second at the bound. Arrivals are Poisson; lengths, in order, are the trace's.
    """
    rows = [_row(name, setting, seed) for name, setting in settings(requests).items()]
    found = {row["workload"]: row for row in rows}
    question = 'Where do "10 to 20 times" come from?'
    return Headline("decomposition", question, tuple(rows), _findings(found), _sentence(found))


def _row(name: str, setting: Setting, seed: int) -> dict:
    deployment = Deployment(setting.card, setting.model)
    cost, planned = Roofline(deployment), at_random(setting.planned, seed)
    regions = deployment.kv_tokens // setting.longest

    def build(kind: str, slots: int = regions) -> Scheduler:
        return server(kind, slots, deployment.kv_tokens, setting.longest)

    def most(kind: str, slots: int = regions) -> float:
        return saturated(planned, lambda: build(kind, slots), cost)

    def at_the_bound(kind: str, rate: float, slots: int = regions) -> Rates:
        return Rates(rate, rate_within(bound, planned, lambda: build(kind, slots), cost, rate))

    bound = 2 * unloaded(planned, cost)
    closed = {slots: most("static", slots) for slots in (1, regions)}
    slots = max(closed, key=closed.get)
    refilled, paged = most("refilled"), most("paged")
    first, last = at_the_bound("static", closed[slots], slots), at_the_bound("paged", paged)
    return {
        "workload": name,
        "model": setting.model,
        "card": setting.card,
        "prompt_per_answer": sum(p.prompt_tokens for p in planned) / sum(p.output_tokens for p in planned),
        "regions": regions,
        "static_slots": slots,
        "static": first.within,
        "paged": last.within,
        "slots_refilled": refilled / closed[slots],
        "memory_freed": paged / refilled,
        "latency_bound": last.usable / first.usable,
        "total": last.within / first.within,
    }


def server(kind: str, slots: int, positions: int, longest: int) -> Scheduler:
    """One of the three: "static", "refilled" or "paged", with so many K/V positions."""
    if kind == "paged":
        return IterationScheduler(256, PagedMemory(positions // 16, events=False))
    memory = ContiguousMemory(positions, longest)
    return DynamicBatcher(slots, memory, max_wait=0.0) if kind == "static" else IterationScheduler(slots, memory)


def _findings(found: dict[str, dict]) -> tuple[Finding, ...]:
    claim, source = (10, 20), 'article 1, "o tamanho do ganho, e de onde ele vem"'
    chat, conversation, code = (found[name] for name in ("ShareGPT-like", "Azure conversation", "Azure code"))
    prompts = "{:.0f} tokens of prompt for each of answer, which every one of the three computes at the same pace"
    shared = "; and at the bound the clients of the third share their steps with the prompts of others"
    return (
        Finding("ShareGPT-like: total", chat["total"], claim, source),
        *(Finding(f"... {factor.replace('_', ' ')}", chat[factor]) for factor in FACTORS),
        Finding("Orca's lengths: total", found["Orca's lengths"]["total"], claim, source),
        Finding(
            "Azure conversation: total",
            conversation["total"],
            claim,
            source,
            prompts.format(conversation["prompt_per_answer"]),
        ),
        Finding("Azure code: total", code["total"], claim, source, prompts.format(code["prompt_per_answer"]) + shared),
    )


def _sentence(found: dict[str, dict]) -> str:
    chat, code = found["ShareGPT-like"], found["Azure code"]
    share = math.log(chat["slots_refilled"]) / math.log(chat["total"])
    return (
        f"On chat the {chat['total']:.1f} times are {chat['slots_refilled']:.1f} of slots refilled x "
        f"{chat['memory_freed']:.1f} of memory freed x {chat['latency_bound']:.1f} of the latency bound: scheduling "
        f"alone is {share:.0%} of the way, on a scale of factors. On code completions, nearly all prompt, the same "
        f"three make {code['total']:.1f}. The gain belongs to a workload, a memory and a bound."
    )
