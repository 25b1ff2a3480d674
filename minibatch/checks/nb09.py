"""Checks for the exercises of notebook 09: a budget, a load with two faces, two workloads, a policy of one's own.

Each runs the simulator and judges what comes of the answer; there is more than one right answer to each.
"""

import numbers
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from minibatch.checks.base import call, need
from minibatch.memory import ContiguousMemory
from minibatch.schedulers import IterationScheduler, Scheduler, StaticBatcher
from minibatch.schedulers.systems import system
from minibatch.simulate import Deployment, Result, Roofline, StreamingTrace, goodput, summary
from minibatch.simulate.scenario import Scenario, replay, simulate
from minibatch.workload import Planned, azure_trace, bare_requests, rescale

CHAT = Scenario(system="vllm-v1", card="A100-80", model="Llama-3-8B", trace="azure-conv", requests=200, rate=4.0)
CHAT_TTFT, CHAT_ITL = 1.0, 0.075  # seconds: p95, p99
TIGHT = Scenario(system="vllm-v1", card="A100-40", model="OPT-13B", trace="azure-conv", requests=150)
FINE, BAD = 0.5, 5.0  # seconds: TTFT of the median client, of the p95 client
SLOTS = 32
MOST_REQUESTS, MOST_PROMPT, MOST_OUTPUT = 400, 512, 400
LENGTHS = 8192  # positions that a request of the code trace may have
CODE_REQUESTS, CODE_RATE = 400, 1.2
CODE_TTFT, CODE_TPOT = 2.0, 0.25  # seconds
BETTER = 1.5  # times the goodput of vLLM V1


def check_chat_budget(function: Callable) -> None:
    """`function()`: a token budget for vLLM V1 under which `CHAT` meets both targets."""
    budget = call(function)
    whole = isinstance(budget, numbers.Integral) and not isinstance(budget, bool)
    need(whole and 1 <= budget <= 65_536, f"{str(budget)[:40]!r} is no budget: return a whole number of tokens")
    found = _chat(int(budget))
    ttft = f"TTFT p95 is {found.ttft_p95:.2f} s, above {CHAT_TTFT:g} s"
    itl = f"ITL p99 is {found.itl_p99:.3f} s, above {CHAT_ITL:g} s"
    need(found.ttft_p95 <= CHAT_TTFT or found.itl_p99 <= CHAT_ITL, f"with a budget of {budget}, {ttft}, and {itl}")
    need(
        found.ttft_p95 <= CHAT_TTFT, f"with a budget of {budget}, {ttft}: prompts take too many steps, or wait for one"
    )
    need(found.itl_p99 <= CHAT_ITL, f"with a budget of {budget}, {itl}: steps are too long for those who read")


@lru_cache(maxsize=64)
def _chat(budget: int) -> Result:
    return summary(simulate(replace(CHAT, knobs=(("token_budget", budget),))))


def check_two_faced_load(function: Callable) -> None:
    """`function()`: a load in requests/s at which `TIGHT` looks fine by its median and bad by its p95."""
    rate = call(function)
    number = isinstance(rate, numbers.Real) and not isinstance(rate, bool)
    need(number and 0.01 <= rate <= 100, f"{str(rate)[:40]!r} is no load: return requests per second, 0.01 to 100")
    median, p95 = _tight(float(rate))
    at = f"at {rate:.3g} requests/s the median TTFT is {median:.2f} s and p95 {p95:.2f} s"
    need(p95 > BAD, f"{at}: nobody waits long yet")
    need(median <= FINE, f"{at}: here the median gives it away")


@lru_cache(maxsize=64)
def _tight(rate: float) -> tuple[float, float]:
    found = summary(simulate(TIGHT.at(rate)))
    return found.ttft_p50, found.ttft_p95


def check_workload(function: Callable) -> None:
    """`function(tenfold)`: (prompt, output) of each request. Static batching loses nothing, or tenfold."""
    alike = _slower(call(function, False), "workload(False)")
    need(alike <= 1.02, f"workload(False): static takes {alike:.2f} times as long; what makes a slot die?")
    apart = _slower(call(function, True), "workload(True)")
    why = "every batch should wait for somebody, and the batches should be many"
    need(apart >= 10, f"workload(True): static takes {apart:.2f} times as long, not 10; {why}")


def _slower(got: object, call_text: str) -> float:
    """How many times as long a static batch takes for these requests, all there at once."""
    pairs = _pairs(got, call_text)
    return _seconds(StaticBatcher, pairs) / _seconds(IterationScheduler, pairs)


def _pairs(got: object, call_text: str) -> tuple[tuple[int, int], ...]:
    listed = isinstance(got, (list, tuple)) and all(isinstance(one, (list, tuple)) and len(one) == 2 for one in got)
    need(listed and len(got) > 0, f"{call_text}: return a list of (prompt_tokens, output_tokens)")
    whole = all(isinstance(each, numbers.Integral) and not isinstance(each, bool) for one in got for each in one)
    need(whole, f"{call_text}: tokens are whole numbers")
    most = f"1 to {MOST_PROMPT} of prompt and 1 to {MOST_OUTPUT} of output"
    within = all(1 <= prompt <= MOST_PROMPT and 1 <= output <= MOST_OUTPUT for prompt, output in got)
    need(within, f"{call_text}: a request may have {most}")
    need(
        2 * SLOTS <= len(got) <= MOST_REQUESTS, f"{call_text}: {2 * SLOTS} to {MOST_REQUESTS} requests, not {len(got)}"
    )
    return tuple((int(prompt), int(output)) for prompt, output in got)


@lru_cache(maxsize=32)
def _seconds(kind: type[Scheduler], pairs: tuple[tuple[int, int], ...]) -> float:
    longest = MOST_PROMPT + MOST_OUTPUT
    scheduler = kind(SLOTS, ContiguousMemory(SLOTS * longest, longest))
    requests = bare_requests(Planned(0.0, prompt, output) for prompt, output in pairs)
    return summary(replay(requests, scheduler, Roofline(Deployment("A100-80", "Llama-3-8B")))).seconds


def check_my_scheduler(function: Callable) -> None:
    """`function(num_positions, max_model_len)`: a scheduler whose goodput on the code trace is 1.5 times vLLM V1's."""
    positions = Deployment("A100-80", "Llama-3-8B").kv_tokens
    scheduler = call(function, positions, LENGTHS)
    need(isinstance(scheduler, Scheduler), f"my_scheduler returned {str(scheduler)[:40]!r}: return a scheduler")
    capacity = scheduler.memory.use().capacity
    need(capacity <= positions, f"my_scheduler has memory for {capacity:,} positions, the card for {positions:,}")
    need(not scheduler.running and not scheduler.waiting, "my_scheduler: it has been used before; make a new one")
    trace, failed = None, ""
    try:
        trace = _code(scheduler)
    except Exception as error:  # of the reader's policy, in the middle of the run
        failed = f"{type(error).__name__}: {str(error)[:200]}"
    need(not failed, f"my_scheduler stopped with {' '.join(failed.split())}")
    lost = sum(trace.ended.values())
    need(not lost, f"my_scheduler did not serve {lost} of {CODE_REQUESTS} requests: shedding load is another exercise")
    mine, theirs = _good(trace), _v1()
    times = f"{mine:.2f} good requests/s, {mine / theirs:.2f} times vLLM V1's {theirs:.2f}"
    need(mine >= BETTER * theirs, f"my_scheduler: {times}; {BETTER:g} times is asked for. Who makes whom wait?")


def _code(scheduler: Scheduler) -> StreamingTrace:
    planned = rescale(azure_trace("code")[:CODE_REQUESTS], CODE_RATE)
    return replay(bare_requests(planned), scheduler, Roofline(Deployment("A100-80", "Llama-3-8B")))


def _good(trace: StreamingTrace) -> float:
    return goodput(trace, ttft=CODE_TTFT, tpot=CODE_TPOT)


@lru_cache(maxsize=1)
def _v1() -> float:
    positions = Deployment("A100-80", "Llama-3-8B").kv_tokens
    return _good(_code(system("vllm-v1").build(positions, LENGTHS)))
