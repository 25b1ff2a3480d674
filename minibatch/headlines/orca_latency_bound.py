"""Orca's 36.9 times at a latency bound: what of it is dead slots, what is waiting. Orca, OSDI 2022, figure 10."""

from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.rates import Build, Rates, at_random, rates, unloaded
from minibatch.memory import ContiguousMemory
from minibatch.schedulers import DynamicBatcher, IterationScheduler
from minibatch.simulate.cards import Deployment
from minibatch.simulate.roofline import Roofline
from minibatch.workload import Planned, equal, synthetic, uniform

LONGEST = 640  # 512 in, 128 out
TRIED = (("static", 1), ("static", 8), ("static", 16), ("iteration", 8), ("iteration", 16), ("iteration", 32))
ALIKE_TRIED = (("static", 8), ("iteration", 8))
ORCA = "Orca paper, figure 10, as noted: 6.81 against 0.185 requests/s at 190 ms a token"


def orca_latency_bound(requests: int = 500, seed: int = 0) -> Headline:
    """The highest rates at which the median E2E / output token is at most twice that of a machine to oneself.

    Orca's lengths, Poisson arrivals; OPT-13B on one A100 of 80 GB instead of 175 billion parameters on sixteen of 40,
    which leaves about as many K/V positions (63 thousand). Static is a batch of whoever waits when the last one has
    ended, as FasterTransformer was fed there. Every slot has the memory for the longest request. Beside it, requests
    that are all alike.
    """
    mixed = at_random(synthetic(requests, seed, prompt=uniform(32, 512), output=uniform(1, 128)), seed)
    alike = at_random(synthetic(requests, seed, prompt=equal(128), output=equal(64)), seed)
    runs = {"Orca's lengths": measured(mixed, TRIED), "all alike": measured(alike, ALIKE_TRIED)}
    rows = [
        {"lengths": lengths, "scheduler": scheduler, "slots": slots, **each._asdict()}
        for lengths, found in runs.items()
        for (scheduler, slots), each in found.items()
    ]
    mixed_gain, alike_gain = map(gains, runs.values())
    rows += [{"lengths": lengths, "scheduler": "gain"} | gains(found) for lengths, found in runs.items()]
    question = "How much more is served if the median client may wait twice as long as alone?"
    findings = _findings(mixed_gain, alike_gain)
    return Headline("orca_latency_bound", question, tuple(rows), findings, _sentence(mixed_gain, alike_gain))


def measured(planned: list[Planned], tried: tuple[tuple[str, int], ...]) -> dict[tuple[str, int], Rates]:
    """Both rates of each scheduler and number of slots."""
    cost = Roofline(Deployment("A100-80", "OPT-13B"))
    bound = 2 * unloaded(planned[:200], cost)
    return {each: rates(planned, _builder(*each), cost, bound) for each in tried}


def _builder(scheduler: str, slots: int) -> Build:
    def build():
        memory = ContiguousMemory(slots * LONGEST, LONGEST)
        if scheduler == "static":
            return DynamicBatcher(slots, memory, max_wait=0.0)
        return IterationScheduler(slots, memory)

    return build


def gains(found: dict[tuple[str, int], Rates]) -> dict[str, float]:
    """The gain at the bound, best against best, as a product of three.

    Slots refilled: saturated, with as many slots as the best static batch. More slots: saturated, from these to those
    of the best iteration-level scheduler; a static batch has no use for them at the bound. Latency bound: how much
    closer to saturation one may run than the other before the median client waits too long.
    """
    (_, few), (_, many) = (
        max((key for key in found if key[0] == name), key=lambda key: found[key].within)
        for name in ("static", "iteration")
    )
    static, iteration = found["static", few], found["iteration", many]
    same = found.get(("iteration", few), static)  # of one slot: the same steps
    return {
        "static_slots": few,
        "iteration_slots": many,
        "slots_refilled": same.saturated / static.saturated,
        "more_slots": iteration.saturated / same.saturated,
        "latency_bound": iteration.usable / static.usable,
        "total": iteration.within / static.within,
    }


def _findings(mixed: dict[str, float], alike: dict[str, float]) -> tuple[Finding, ...]:
    why = (
        "one card against a pipeline over sixteen, which a batch that closes leaves half empty between its "
        "micro-batches; and an engine that was itself up to 47 % faster on that model"
    )
    return (
        Finding("rate at twice the unloaded latency: gain", mixed["total"], 36.9, ORCA, why),
        Finding("... of which slots refilled (saturated, same slots)", mixed["slots_refilled"]),
        Finding("... of which more slots", mixed["more_slots"]),
        Finding("... of which waiting, at the bound", mixed["latency_bound"]),
        Finding("all requests alike: gain at the bound", alike["total"], (1.0, 1.2), "Orca paper, figure 11, as noted"),
    )


def _sentence(mixed: dict[str, float], alike: dict[str, float]) -> str:
    return (
        f"On one card the gain at Orca's bound is {mixed['total']:.1f}, best against best: "
        f"{mixed['slots_refilled']:.2f} are dead slots and padding, {mixed['more_slots']:.2f} come from "
        f"{mixed['iteration_slots']} slots in place of {mixed['static_slots']}, and {mixed['latency_bound']:.2f} from "
        "clients that need not wait for a batch to end, so that the server may run nearer to saturation. With equal "
        f"lengths and slots, {alike['total']:.2f} is left."
    )
