"""Who asks, for how much, and when: synthetic workloads, the Azure 2023 traces and the course's chat prompts.

Introduced in notebook 02. A workload is planned by its lengths alone (`Planned`), which is all that scheduling and
a cost model look at; `to_requests` fills in prompts for an engine that runs a real model. It reads like a sentence:

    synthetic(24, prompt=uniform(8, 64), output=exponential(mean=64, cap=256), arrivals=poisson(rate=2.0), seed=0)

A seed gives the same workload in every run. Prompts, outputs and arrivals draw from generators of their own, so
another output law leaves the arrivals as they were, and Python's global random state is never touched.
"""

import gzip
import json
import math
from collections.abc import Callable, Iterable
from datetime import datetime
from importlib.resources import files
from random import Random
from typing import NamedTuple

from minibatch.request import Request, SamplingParams

Lengths = Callable[[Random], int]  # draws one length, in tokens
Arrivals = Callable[[Random, int], list[float]]  # draws n planned arrivals in seconds, in order

AZURE_TRACES = {"conv": "AzureLLMInferenceTrace_conv.csv.gz", "code": "AzureLLMInferenceTrace_code.csv.gz"}
CHAT_PROMPTS = {"smollm2": "prompts_smollm2.json", "tiny": "prompts_tiny.json"}

_AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
_MAX_REDRAWS = 1000  # so many draws above the cap in a row are a mistake in the parameters, not bad luck
_FIRST_PROMPT_ID = 3  # the ids below are special tokens (begin, end, padding) in most vocabularies


class Planned(NamedTuple):
    """A request known by its lengths only: planned arrival in seconds, prompt and output in tokens."""

    arrival: float
    prompt_tokens: int
    output_tokens: int


# How long: each function returns a sampler that draws one length.


def equal(tokens: int) -> Lengths:
    """Every length the same: the case in which a static batch wastes nothing."""
    _check_tokens("tokens", tokens)
    return lambda rng: tokens


def uniform(lo: int, hi: int) -> Lengths:
    """Every whole number from `lo` to `hi`, both included, equally likely. Orca's outputs are uniform(1, 128)."""
    _check_tokens("lo", lo)
    _check_tokens("hi", hi, least=lo)
    return lambda rng: rng.randint(lo, hi)


def exponential(mean: float, cap: int) -> Lengths:
    """Whole numbers from 1, as if an answer ended after each token with probability 1 / `mean`.

    That is the exponential law counted in tokens. `mean` is the mean before the cap: a length above `cap` is
    drawn again, as in Anyscale's benchmark, and not cut to `cap`, which would pile up equal lengths there.
    """
    _check(_finite(mean) and mean > 1, "mean", mean, "must be a finite number of tokens above 1")
    _check_tokens("cap", cap)
    rate = -math.log1p(-1 / mean)
    return _redrawn(lambda rng: math.ceil(rng.expovariate(rate)), cap)


def lognormal(median: float, sigma: float, cap: int) -> Lengths:
    """exp(normal), rounded: the logarithm has mean ln `median` and standard deviation `sigma`.

    A length above `cap` (or one that rounds to 0) is drawn again. The outputs of the Azure conversation trace have
    a log mean of 5.02 and a log deviation of 0.86, which is about lognormal(median=151, sigma=0.86, cap=1000).
    """
    _check(_finite(median) and median >= 1, "median", median, "must be a finite number of tokens, at least 1")
    _check(_finite(sigma) and sigma >= 0, "sigma", sigma, "must be a finite number, at least 0")
    _check_tokens("cap", cap, least=math.ceil(median))
    return _redrawn(lambda rng: round(rng.lognormvariate(math.log(median), sigma)), cap)


def bimodal(short: int, long: int, share: float) -> Lengths:
    """Two lengths only: `long` with probability `share`, else `short`."""
    _check_tokens("short", short)
    _check_tokens("long", long, least=short)
    _check(_finite(share) and 0 <= share <= 1, "share", share, "the share of long ones lies between 0 and 1")
    return lambda rng: long if rng.random() < share else short


# When: each function returns a sampler that draws n arrivals.


def burst() -> Arrivals:
    """Everybody at second 0."""
    return lambda rng, n: [0.0] * n


def poisson(rate: float) -> Arrivals:
    """Independent clients, `rate` requests per second together: gamma(rate, burstiness=1)."""
    return gamma(rate, burstiness=1.0)


def gamma(rate: float, burstiness: float) -> Arrivals:
    """Gamma-distributed gaps, with vLLM's `--burstiness` as shape: 1 is Poisson, below 1 comes in bursts.

    As in vLLM the gaps are rescaled so that the last of n requests comes at n / `rate` seconds: the mean rate
    holds exactly, whatever the seed. Before that the gaps' coefficient of variation is 1 / sqrt(burstiness).
    """
    _check(_finite(rate) and rate > 0, "rate", rate, "must be a finite number of requests per second above 0")
    _check(_finite(burstiness) and burstiness > 0, "burstiness", burstiness, "must be a finite number above 0")

    def draw(rng: Random, n: int) -> list[float]:
        gaps = [rng.gammavariate(burstiness, 1.0) for _ in range(n)]
        total, seconds, times = sum(gaps), n / rate, []
        _check(n == 0 or total > 0, "burstiness", burstiness, f"too small: all {n} gaps came out as 0")
        elapsed = 0.0
        for gap in gaps:
            elapsed += gap
            times.append(min(elapsed / total, 1.0) * seconds)
        return times

    return draw


def synthetic(
    n: int,
    seed: int = 0,
    prompt: Lengths | None = None,
    output: Lengths | None = None,
    arrivals: Arrivals | None = None,
) -> list[Planned]:
    """`n` planned requests in order of arrival, the same for the same seed.

    Unless told otherwise prompts are equal(32), outputs uniform(1, 128) as Orca's, and arrivals a burst().

    >>> synthetic(2, prompt=equal(5), output=equal(7))
    [Planned(arrival=0.0, prompt_tokens=5, output_tokens=7), Planned(arrival=0.0, prompt_tokens=5, output_tokens=7)]
    """
    _check(_whole(n) and n >= 0, "n", n, "must be a whole number of requests, 0 or more")
    _check(_whole(seed), "seed", seed, "must be a whole number")
    prompt, output, arrivals = prompt or equal(32), output or uniform(1, 128), arrivals or burst()
    times = arrivals(Random(f"{seed} arrivals"), n)
    prompts, outputs = Random(f"{seed} prompt"), Random(f"{seed} output")
    return [Planned(time, prompt(prompts), output(outputs)) for time in times]


def sharegpt_like(n: int, seed: int = 0) -> list[Planned]:
    """`n` requests, all at second 0, with lengths like those of ShareGPT in the vLLM paper (section 6.1).

    The paper gives the means, 161.31 tokens in and 337.99 out, and its model takes 2,048 in all; ShareGPT itself is
    not ours to ship. So: log-normal lengths with these means, spread as in Azure's conversations (log deviations 0.99
    in, 0.86 out), no prompt above 1,024 (vLLM's benchmark drops those) and no request above 2,048.
    """
    draws = synthetic(2 * n + 20, seed, prompt=lognormal(108, 0.99, cap=1024), output=lognormal(249, 0.86, cap=2048))
    return [one for one in draws if one.prompt_tokens + one.output_tokens <= 2048][:n]


def azure_trace(name: str) -> list[Planned]:
    """A whole Azure LLM inference trace of 2023: "conv" (19,366 requests) or "code" (8,819), about an hour each.

    Arrivals in seconds from the first request. Real lengths and times, no text. Patel et al., "Splitwise", ISCA
    2024, CC-BY 4.0: see data/NOTICE.md.
    """
    file = _known(name, AZURE_TRACES, "trace")
    return _parse_azure(gzip.decompress(_data(file)).decode("ascii"), file)


def to_requests(planned: Iterable[Planned], vocab_size: int, seed: int = 0) -> list[Request]:
    """Requests "R1", "R2", … in order of arrival, with random prompt ids in [3, vocab_size) and no stop tokens.

    Without stop tokens each writes exactly its planned output, whatever the model would say.
    """
    _check(_whole(vocab_size) and vocab_size > _FIRST_PROMPT_ID, "vocab_size", vocab_size, "must be a whole number > 3")
    _check(_whole(seed), "seed", seed, "must be a whole number")
    rng = Random(f"{seed} prompt ids")
    ids = list(range(_FIRST_PROMPT_ID, vocab_size))  # a list, so that prompts share the same few int objects
    return [
        Request(f"R{i}", tuple(rng.choices(ids, k=one.prompt_tokens)), SamplingParams(one.output_tokens), one.arrival)
        for i, one in enumerate(sorted(planned, key=lambda one: one.arrival), 1)
    ]


def chat_prompts(name: str = "smollm2") -> list[tuple[str, str]]:
    """The course's chat prompts for a model, "smollm2" or "tiny", as (request id, text of the user's turn)."""
    entries = json.loads(_data(_known(name, CHAT_PROMPTS, "set of prompts")).decode("utf-8"))
    return [(entry["id"], entry["text"]) for entry in entries]


def _parse_azure(text: str, file: str) -> list[Planned]:
    header, *rows = text.splitlines() or [""]
    if header != _AZURE_HEADER:
        raise ValueError(f"{file}, line 1: the header is {header!r}, not {_AZURE_HEADER!r}")
    planned, first = [], None
    for line, row in enumerate(rows, 2):
        try:
            stamp, prompt_tokens, output_tokens = row.split(",")
            time = datetime.fromisoformat(stamp[:26])  # seven decimals, the last always 0; Python takes six
            first = first or time
            one = Planned((time - first).total_seconds(), int(prompt_tokens), int(output_tokens))
        except ValueError as error:
            raise ValueError(f"{file}, line {line}: {row!r} is not a time and two numbers of tokens") from error
        if min(one.prompt_tokens, one.output_tokens) < 1 or (planned and one.arrival < planned[-1].arrival):
            raise ValueError(f"{file}, line {line}: {row!r} has no tokens, or comes before the line above it")
        planned.append(one)
    return planned


def _redrawn(draw: Lengths, cap: int) -> Lengths:
    """`draw`, repeated until the length lies in [1, cap]."""

    def sampler(rng: Random) -> int:
        for _ in range(_MAX_REDRAWS):
            length = draw(rng)
            if 1 <= length <= cap:
                return length
        raise ValueError(f"cap={cap!r}: {_MAX_REDRAWS} lengths in a row lay above it; raise it or lower the mean")

    return sampler


def _data(file: str) -> bytes:
    return files("minibatch").joinpath("data", file).read_bytes()


def _known(name: str, table: dict[str, str], what: str) -> str:
    _check(name in table, "name", name, f"no such {what}; there is {', '.join(map(repr, table))}")
    return table[name]


def _check_tokens(field: str, value: object, least: int = 1) -> None:
    _check(_whole(value) and value >= least, field, value, f"must be a whole number of tokens, at least {least}")


def _check(ok: bool, field: str, value: object, why: str) -> None:
    if not ok:
        raise ValueError(f"{field}={value!r}: {why}")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
