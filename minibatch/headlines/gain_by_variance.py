"""What a batch that never closes gains at saturation, against how unequal the answers are. Article 1."""

from statistics import mean, pstdev

from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.rates import saturated
from minibatch.memory import ContiguousMemory
from minibatch.metrics import dead_slot_factor
from minibatch.schedulers import IterationScheduler, Scheduler, StaticBatcher
from minibatch.simulate.cards import Deployment
from minibatch.simulate.roofline import Roofline
from minibatch.workload import Lengths, Planned, azure_trace, equal, exponential, synthetic, uniform

SLOTS = 32
LONGEST = 8192  # tokens of a request, prompt and answer; longer ones of the traces are left out
ALL_EQUAL, EQUAL, UNIFORM, CONV, CODE = "all equal", "equal answers", "uniform", "Azure conversation", "Azure code"
ANSWERS: dict[str, Lengths] = {
    ALL_EQUAL: equal(64),
    EQUAL: equal(64),
    UNIFORM: uniform(1, 128),
    "exponential, cap 128": exponential(mean=128, cap=128),
    "exponential, cap 512": exponential(mean=128, cap=512),
    "exponential, cap 1,536": exponential(mean=128, cap=1536),
}


def workloads(requests: int) -> dict[str, list[Planned]]:
    """Laws for the answers, with Orca's prompts of 32 to 512 tokens or all of 256; the first requests of two traces."""
    prompts = {name: equal(256) if name == ALL_EQUAL else uniform(32, 512) for name in ANSWERS}
    drawn = {name: synthetic(requests, prompt=prompts[name], output=law) for name, law in ANSWERS.items()}
    return drawn | {name: _fitting(trace)[:requests] for name, trace in ((CONV, "conv"), (CODE, "code"))}


def _fitting(trace: str) -> list[Planned]:
    return [one for one in azure_trace(trace) if one.prompt_tokens + one.output_tokens <= LONGEST]


def gain_by_variance(requests: int = 800) -> Headline:
    """Both batchers with 32 slots and memory for all of them: Llama-3-8B on an A100 of 80 GB, a queue that never ends.

    Each request takes exactly the memory it needs, so memory limits neither. The gain in steps is the closed form over
    the same answers; in seconds, a static batch also loses to the padding of its prompts, and both compute prompts.
    """
    rows = [_row(name, planned) for name, planned in workloads(requests).items()]
    question = "What does a batch that never closes gain, by how unequal the answers are?"
    found = {row["answers"]: row for row in rows}
    return Headline("gain_by_variance", question, tuple(rows), _findings(found), _sentence(found))


def _row(name: str, planned: list[Planned]) -> dict:
    deployment = Deployment("A100-80", "Llama-3-8B")
    served = {
        kind.name: saturated(planned, lambda kind=kind: _build(kind, deployment.kv_tokens), Roofline(deployment))
        for kind in (StaticBatcher, IterationScheduler)
    }
    answers = [one.output_tokens for one in planned]
    return {
        "answers": name,
        "mean_prompt": mean(one.prompt_tokens for one in planned),
        "mean_answer": mean(answers),
        "variation": pstdev(answers) / mean(answers),
        "gain_in_steps": dead_slot_factor(answers, SLOTS),
        "gain_in_time": served["iteration"] / served["static"],
        **served,
    }


def _build(kind: type[Scheduler], positions: int) -> Scheduler:
    return kind(SLOTS, ContiguousMemory(positions, LONGEST, reserve="exact"))


def _findings(found: dict[str, dict]) -> tuple[Finding, ...]:
    claim, source = (10, 20), 'article 1, "o tamanho do ganho, e de onde ele vem"'
    prompts = (
        f"{found[CODE]['mean_prompt']:.0f} tokens of prompt to {found[CODE]['mean_answer']:.0f} of answer: most of "
        "the time goes into prompts, which both compute, and dead slots are cheap beside them"
    )
    dead = "dead slots and padding only: both are saturated, on equal memory; the claim includes waiting and memory"
    return (
        Finding(
            "all equal: gain in time", found[ALL_EQUAL]["gain_in_time"], (1.0, 1.1), "Orca paper, figure 11, as noted"
        ),
        Finding("equal answers, unequal prompts: gain in time", found[EQUAL]["gain_in_time"]),
        Finding("uniform answers: gain in time", found[UNIFORM]["gain_in_time"], claim, source, dead),
        Finding("Azure conversation: gain in time", found[CONV]["gain_in_time"], claim, source, dead),
        Finding("Azure code: gain in steps", found[CODE]["gain_in_steps"], claim, source),
        Finding("Azure code: gain in time", found[CODE]["gain_in_time"], claim, source, prompts),
    )


def _sentence(found: dict[str, dict]) -> str:
    return (
        f"If all requests are alike the gain is {found[ALL_EQUAL]['gain_in_time']:.2f}; it grows with the spread of "
        f"the answers, to {found[CODE]['gain_in_steps']:.1f} in steps on Azure's code. In seconds that is "
        f"{found[CODE]['gain_in_time']:.1f}, for a step with dead slots costs less than one that computes prompts; "
        f"and prompts of unequal length, padded, cost a static batch a factor of {found[EQUAL]['gain_in_time']:.2f} "
        "where all its answers are equal."
    )
