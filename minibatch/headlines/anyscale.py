"""Anyscale's 23 times: throughput against the cap on answers, with tokens counted their way and ours.

Source: "How continuous batching enables 23x throughput in LLM inference" (Anyscale, June 2023) and its benchmark,
github.com/anyscale/llm-continuous-batching-benchmarks: 1,000 requests at once, 512 tokens in, answers exponential with
mean 128 and drawn again above the cap, OPT-13B on an A100 of 40 GB, tokens/s = (prompts + answers) / time.
"""

from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.rates import Build
from minibatch.memory import ContiguousMemory, PagedMemory
from minibatch.schedulers import IterationScheduler, StaticBatcher
from minibatch.simulate.cards import Deployment
from minibatch.simulate.result import summary
from minibatch.simulate.roofline import Roofline
from minibatch.simulate.scenario import replay
from minibatch.workload import bare_requests, equal, exponential, synthetic

PROMPT, POSITIONS = 512, 15_728  # K/V positions: 12 GiB, as the vLLM paper gives a 13B model on this card
STATIC_BATCH = {32: 16, 128: 12, 512: 8, 1536: 4}  # by cap, as in their naive_hf_variable_size
STATIC, CAP, KNOWN, PAGED = "static batch", "reserved: the cap", "reserved: the answer", "paged"
NAIVE = 81  # their tokens/s of Hugging Face's pipeline at cap 1,536
PUBLISHED = {"naive": 1, "FasterTransformer": 4, "TGI": 8, "vLLM": 23}  # times that
SOURCE = "Anyscale, 2023, cap 1,536"


def anyscale(requests: int = 1000, seed: int = 0) -> Headline:
    """Static batches of their sizes; iteration-level with memory for the cap, for the true answer, in blocks."""
    cost = Roofline(Deployment("A100-40", "OPT-13B"))
    rows = []
    for cap in STATIC_BATCH:
        planned = synthetic(requests, seed, prompt=equal(PROMPT), output=exponential(mean=128, cap=cap))
        for system, build in _systems(cap).items():
            found = summary(replay(bare_requests(planned), build(), cost))
            row = {"cap": cap, "system": system, "theirs": found.prompt_and_output_per_second}
            rows.append(row | {"outputs": found.tokens_per_second, "running": found.mean_running})
    at = {(row["system"], row["cap"]): row for row in rows}
    rows += [{"cap": 1536, "published": name, "theirs": times * NAIVE} for name, times in PUBLISHED.items()]
    question = "How does throughput fall with the cap on answers, and which tokens are counted?"
    return Headline("anyscale", question, tuple(rows), _findings(at), _sentence(at))


def _systems(cap: int) -> dict[str, Build]:
    longest, slots = PROMPT + cap, 256
    return {
        STATIC: lambda: StaticBatcher(STATIC_BATCH[cap], ContiguousMemory(STATIC_BATCH[cap] * longest, longest)),
        CAP: lambda: IterationScheduler(slots, ContiguousMemory(POSITIONS, longest)),
        KNOWN: lambda: IterationScheduler(slots, ContiguousMemory(POSITIONS, longest, reserve="exact")),
        PAGED: lambda: IterationScheduler(slots, PagedMemory(POSITIONS // 16, events=False)),
    }


def _gain(at: dict[tuple[str, int], dict], system: str, cap: int) -> float:
    return at[system, cap]["theirs"] / at[STATIC, cap]["theirs"]


def _findings(at: dict[tuple[str, int], dict]) -> tuple[Finding, ...]:
    naive = (
        f"theirs is over Hugging Face's pipeline, at {NAIVE} tokens/s slower than any static batch has to be; over "
        "FasterTransformer, static as well, theirs is 23 / 4"
    )
    padded = (
        "TGI of 2023 padded this model's batches and counted the longest prompt for every one against its limit, so "
        "fewer ran at once than fit here"
    )
    outputs = {system: at[system, 1536]["outputs"] / at[system, 32]["outputs"] for system in (STATIC, PAGED)}
    theirs = at[PAGED, 1536]["theirs"] / at[PAGED, 32]["theirs"]
    return (
        Finding(
            "static batch: tokens/s, prompts counted",
            at[STATIC, 1536]["theirs"],
            4.0 * NAIVE,
            f"{SOURCE}: FasterTransformer",
        ),
        Finding("paged / static batch", _gain(at, PAGED, 1536), 23.0, f"{SOURCE}: vLLM / naive", naive),
        Finding("paged / static batch, against theirs over FasterTransformer", _gain(at, PAGED, 1536), 23 / 4, SOURCE),
        Finding(
            "reserved for the answer / static batch",
            _gain(at, KNOWN, 1536),
            8 / 4,
            f"{SOURCE}: TGI / FasterTransformer",
            padded,
        ),
        Finding("paged, cap 1,536 / cap 32: prompts counted", theirs),
        Finding("paged, cap 1,536 / cap 32: outputs alone", outputs[PAGED]),
        Finding("static, cap 1,536 / cap 32: outputs alone", outputs[STATIC]),
    )


def _sentence(at: dict[tuple[str, int], dict]) -> str:
    low, high = at[PAGED, 32], at[PAGED, 1536]
    prompts = 1 - high["outputs"] / high["theirs"]
    return (
        f"Counted with prompts, the paged server's throughput falls from {low['theirs']:,.0f} to "
        f"{high['theirs']:,.0f} tokens/s as the cap rises; the answers alone rise from {low['outputs']:.0f} to "
        f"{high['outputs']:.0f}. Even at cap 1,536 prompts are {prompts:.0%} of what was counted. Over a static batch "
        f"it gains {_gain(at, PAGED, 1536):.1f} times, close to the published 23 / 4 over FasterTransformer: of the "
        "23, about 4 are one static engine against a slower one."
    )
