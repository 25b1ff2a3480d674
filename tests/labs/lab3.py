"""Right and wrong answers to lab 3. Read by tests/test_labs.py, which says the format."""

import math
from itertools import pairwise
from statistics import mean

from minibatch import Engine, Request, SamplingParams
from minibatch.checks.lab3 import (
    check_budget,
    check_cap,
    check_gap,
    check_largest_budget,
    check_order,
    check_sizes,
    check_ttft,
)
from minibatch.metrics import latency, percentile
from minibatch.schedulers import IterationScheduler, Scheduler
from minibatch.schedulers.mix import Chunked, PrefillFirst, WholePrefills
from minibatch.schedulers.mix_whole import WholeUnderBudget
from minibatch.simulate import ScriptedExecutor
from minibatch.step import Chunk, StepPlan

LAB = "lab3"


# --- chunk_sizes ---


def sizes_by_the_package(prompt, budget, decodes):
    """What the package's scheduler does with this prompt is right too."""
    if budget <= decodes:
        return []
    engine = Engine(IterationScheduler(decodes + 1, mix=Chunked(budget)), ScriptedExecutor())
    for i in range(decodes):
        engine.submit(Request(f"{i}", (1,), SamplingParams(1000)))
    if decodes:
        engine.step()
    engine.submit(Request("new", (1,) * prompt, SamplingParams(1)))
    while "new" in engine.open:
        engine.step()
    return [work.count for step in engine.trace.steps for work in step.live if work.request_id == "new"]


def sizes_by_division(prompt, budget, decodes):
    left = budget - decodes
    if left < 1:
        return []
    whole, rest = divmod(prompt, left)
    return (left,) * whole + (rest,) * (rest > 0)


def decodes_not_charged(prompt, budget, decodes):
    return sizes_by_division(prompt, budget, 0)


def last_token_apart(prompt, budget, decodes):
    """As if the chunk that ends a prompt yielded nothing, and a step more were needed for the first token."""
    return [*sizes_by_division(prompt - 1, budget, decodes), 1] if budget > decodes else []


def last_token_left_out(prompt, budget, decodes):
    return list(sizes_by_division(prompt - 1, budget, decodes))


def a_token_for_each_chunk(prompt, budget, decodes):
    """As if every chunk yielded a token that has to be computed too."""
    sizes = sizes_by_division(prompt, budget, decodes)
    return list(sizes_by_division(prompt + len(sizes) - 1, budget, decodes))


def exact_fit_cut_in_two(prompt, budget, decodes):
    """`<` for `<=`: a prompt that just fits is cut."""
    sizes = list(sizes_by_division(prompt, budget, decodes))
    return [*sizes[:-1], sizes[-1] - 1, 1] if sizes and sizes[-1] == budget - decodes > 1 else sizes


def a_chunk_of_nothing(prompt, budget, decodes):
    """Ends with what is left of a prompt that has ended."""
    left, sizes = budget - decodes, []
    while left > 0 and prompt >= 0:
        sizes.append(min(prompt, left))
        prompt -= left
    return sizes


def one_over(prompt, budget, decodes):
    return sizes_by_division(prompt, budget + 1, decodes)


def rest_goes_first(prompt, budget, decodes):
    return list(sizes_by_division(prompt, budget, decodes))[::-1]


def equal_chunks(prompt, budget, decodes):
    n = len(sizes_by_division(prompt, budget, decodes))
    return [prompt // n + (i < prompt % n) for i in range(n)]


# --- schedule ---


class Budget(Scheduler):
    """Right as it stands, with decodes, prompts begun and the queue in three loops. The mistakes change a part."""

    def __init__(self, max_num_seqs=8, token_budget=256, chunk_cap=None, memory=None):
        super().__init__(max_num_seqs, memory)
        self.token_budget, self.chunk_cap = token_budget, chunk_cap or token_budget

    def schedule(self, now):
        self.left, self.chunks, self.admitted, self.now = self.token_budget, {}, [], now
        self.fill()
        return StepPlan(tuple(self.chunks.values()), admitted=tuple(self.admitted))

    def fill(self):
        self.compute(self.writing())
        self.compute(self.begun())
        self.let_in()

    def writing(self):
        return [one for one in self.running if one.output]

    def begun(self):
        return [one for one in self.running if not one.output and one not in self.chunks]

    def size(self, one):
        return min(one.num_tokens - one.num_computed_tokens, self.left, self.chunk_cap)

    def compute(self, some):
        for one in some:
            if count := self.size(one):
                self.chunks[one] = Chunk(one, one.slot, one.num_computed_tokens, count)
                self.left -= count

    def may_enter(self):
        return self.left > 0

    def let_in(self, most=math.inf):
        while (
            most > 0 and self.waiting and self._free_slots and self.may_enter() and self.memory.admit(self.waiting[0])
        ):
            one = self.waiting.popleft()
            self.seat(one, self.now)
            self.admitted.append(one.request_id)
            self.compute([one])
            most -= 1


class InOrderOfAdmission(Budget):
    """vLLM V1: `running` as it is. Right: those who run never ask for more than the budget together."""

    def fill(self):
        self.compute(self.running)
        self.let_in()


def by_the_package(max_num_seqs, token_budget, chunk_cap):
    return IterationScheduler(max_num_seqs, mix=Chunked(token_budget, chunk_cap))


def whole_prompts(max_num_seqs, token_budget, chunk_cap):
    """The scheduler of lab 2."""
    return IterationScheduler(max_num_seqs, mix=WholePrefills())


def whole_prompts_that_fit(max_num_seqs, token_budget, chunk_cap):
    """TensorRT-LLM without chunked context, its budget made as large as the longest prompt."""
    return IterationScheduler(max_num_seqs, mix=WholeUnderBudget(max(token_budget, 50)))


def prompts_or_decodes(max_num_seqs, token_budget, chunk_cap):
    """vLLM V0, SGLang: a step of prompts stalls those who write."""
    return IterationScheduler(max_num_seqs, mix=PrefillFirst(token_budget))


def budget_of_the_example(max_num_seqs, token_budget, chunk_cap):
    return IterationScheduler(max_num_seqs, mix=Chunked(4))


class BudgetOfEachSequence(Budget):
    def size(self, one):
        return min(one.num_tokens - one.num_computed_tokens, self.token_budget, self.chunk_cap)

    def may_enter(self):
        return True


class DecodesNotCharged(Budget):
    def fill(self):
        self.compute(self.writing())
        self.left = self.token_budget
        self.compute(self.begun())
        self.let_in()


class PromptsBeforeDecodes(Budget):
    def fill(self):
        self.compute(self.begun())
        self.let_in()
        self.compute(self.writing())


class OneChunkAStep(Budget):
    """At most one prompt is in a step, whatever is left of the budget."""

    def fill(self):
        self.compute(self.writing())
        self.compute(self.begun()[:1])
        self.let_in(most=0 if len(self.chunks) > len(self.writing()) else 1)


class OneNewcomerAStep(Budget):
    def let_in(self):
        super().let_in(most=1)


class RestIsWasted(Budget):
    """A newcomer is never cut: it enters when all of it fits, or when the step is empty."""

    def may_enter(self):
        return self.left > 0 and (not self.chunks or self.waiting[0].num_tokens <= self.left)


class ExactFitCutInTwo(Budget):
    def size(self, one):
        count = super().size(one)
        return count - (count > 1 and count == self.left)


class LastTokenApart(Budget):
    """The last token of a prompt in a step of its own, as if a chunk could not yield a token."""

    def size(self, one):
        lacks = one.num_tokens - one.num_computed_tokens
        return min(max(lacks - 1, 1), self.left, self.chunk_cap)


class EveryChunkYields(Budget):
    """Once its first chunk is computed, a prompt is taken for one that writes: a token a step."""

    def size(self, one):
        return min(super().size(one), 1) if one.num_computed_tokens else super().size(one)


class ChunkOfNothing(Budget):
    """Newcomers enter although the decodes fill the budget."""

    def may_enter(self):
        return True

    def compute(self, some):
        for one in some:
            count = self.size(one)
            self.chunks[one] = Chunk(one, one.slot, one.num_computed_tokens, count)
            self.left -= count


class EntersWithNothing(Budget):
    """All slots are filled at once; whoever gets no chunk waits inside."""

    def may_enter(self):
        return True


class OneOver(Budget):
    def size(self, one):
        return min(one.num_tokens - one.num_computed_tokens, self.left + (not one.output), self.chunk_cap)


class NewcomersOvertake(Budget):
    def fill(self):
        self.compute(self.writing())
        self.let_in()
        self.compute(self.begun())


class LastComeFirst(Budget):
    def begun(self):
        return super().begun()[::-1]


class ShortestFirst(Budget):
    def let_in(self):
        self.waiting = type(self.waiting)(sorted(self.waiting, key=lambda one: one.num_tokens))
        super().let_in()


class EqualShares(Budget):
    def fill(self):
        self.share = max(self.token_budget // max(len(self.running) + len(self.waiting), 1), 1)
        super().fill()

    def size(self, one):
        return min(super().size(one), self.share)


class PromptsWhenNobodyWrites(Budget):
    """Prompts starve as long as somebody writes."""

    def fill(self):
        self.compute(self.writing())
        if not self.chunks:
            self.compute(self.begun())
            self.let_in()


class NoCap(Budget):
    def size(self, one):
        return min(one.num_tokens - one.num_computed_tokens, self.left)


class CapAtEntryOnly(Budget):
    def size(self, one):
        return min(
            one.num_tokens - one.num_computed_tokens, self.left, *[self.chunk_cap] * (not one.num_computed_tokens)
        )


class CapOfAllPrompts(Budget):
    """The cap taken for a second budget, of prompt tokens."""

    def fill(self):
        self.compute(self.writing())
        self.left = min(self.left, self.chunk_cap)
        self.compute(self.begun())
        self.let_in()


class CapEndsTheStep(Budget):
    """Whoever is cut was the last: true of the budget, not of the cap."""

    def may_enter(self):
        return self.left > 0 and all(chunk.yields_token for chunk in self.chunks.values())


class DoesNotSayWhoEntered(Budget):
    def schedule(self, now):
        return StepPlan(super().schedule(now).chunks)


class TurnsAllAway(Budget):
    def refusal(self, request):
        return "prompt", len(request.prompt), "too much work"


class StartsFromZero(Budget):
    """A prompt's second chunk computes the first one again."""

    def compute(self, some):
        super().compute(some)
        self.chunks = {one: chunk._replace(start=0) for one, chunk in self.chunks.items()}


# --- bill ---


def bill_with(chunks, decodes, seconds, others=None, wait=None, extra=0.0, used=slice(None), worst=max):
    """Right for the published rule with the defaults. `others`: how many take part in the newcomer's steps."""
    steps = [seconds((decodes if others is None else others) + size) for size in chunks]
    ttft = (seconds(decodes) if wait is None else wait) + sum(steps[used]) + extra
    return (worst(steps), ttft) if chunks else (seconds(decodes), math.inf)


def bill_by_a_loop(chunks, decodes, seconds):
    clock = longest = seconds(decodes)
    for size in chunks:
        step = seconds(size + decodes)
        longest, clock = max(longest, step), clock + step
    return [longest, clock if chunks else math.inf]


def bill_in_ms(*case):
    return tuple(1e3 * part for part in bill_with(*case))


def last_chunk_yields_nothing(chunks, decodes, seconds):
    return bill_with(chunks, decodes, seconds, extra=seconds(decodes + 1))


def every_chunk_yields(*case):
    return bill_with(*case, used=slice(1))


def no_decodes_in_the_step(*case):
    return bill_with(*case, others=0)


def ttft_without_decodes(*case):
    return bill_with(*case)[0], bill_with(*case, others=0)[1]


def ttft_from_the_first_step(*case):
    return bill_with(*case, wait=0.0)


def mean_gap(*case):
    return bill_with(*case, worst=mean)


def gap_of_the_whole_prefill(*case):
    return bill_with(*case, worst=sum)


def gap_without_the_newcomer(chunks, decodes, seconds):
    return seconds(decodes), bill_with(chunks, decodes, seconds)[1]


def first_chunk_is_the_longest(*case):
    return bill_with(*case, worst=lambda steps: steps[-1])


def ttft_first(*case):
    return bill_with(*case)[::-1]


def one_big_step(chunks, decodes, seconds):
    """Counts the tokens and forgets that each step reads the weights."""
    return bill_with(chunks, decodes, seconds)[0], seconds(decodes) + seconds(decodes + sum(chunks))


def zero_if_it_never_gets_on(chunks, *rest):
    return bill_with(chunks, *rest) if chunks else (rest[1](rest[0]), 0.0)


# --- largest_budget ---


def largest_with(target, budgets, run, measure=max, key=None, strict=False, choose=max):
    """Right for the published rule with the defaults."""
    kept = []
    for budget in budgets:
        waits = (key or gaps_in)(run(budget))
        if measure(waits) < target or (not strict and measure(waits) == target):
            kept.append(budget)
    return choose(kept) if kept else 0


def gaps_in(trace):
    return [gap for record in trace.finished for gap in latency(record).itl]


def p99(waits):
    return percentile(waits, 99)


def largest_from_above(target, budgets, run):
    """Right: from the largest down, by the times of the tokens."""
    for budget in sorted(budgets, reverse=True):
        times = [record.token_times for record in run(budget).requests.values()]
        if all(after - before <= target for each in times for before, after in pairwise(each)):
            return budget
    return 0


def budgets_with_p99(*case):
    return largest_with(*case, measure=p99)


def mean_of_the_gaps(*case):
    return largest_with(*case, measure=mean)


def by_tpot(*case):
    return largest_with(*case, key=lambda trace: [latency(r).tpot for r in trace.finished if len(r.tokens) > 1])


def ttft_is_a_gap(*case):
    return largest_with(*case, key=lambda trace: gaps_in(trace) + [latency(r).ttft for r in trace.finished])


def length_of_the_steps(*case):
    return largest_with(*case, key=lambda trace: [step.end - step.start for step in trace.steps])


def below_the_target_only(*case):
    return largest_with(*case, strict=True)


def smallest_budget(*case):
    return largest_with(*case, choose=min)


def last_in_the_list(*case):
    return largest_with(*case, choose=lambda kept: kept[-1])


def none_if_none(*case):
    return largest_with(*case) or min(case[1])


def the_first_request_alone(*case):
    return largest_with(*case, key=lambda trace: latency(next(iter(trace.requests.values()))).itl)


def its_gap_instead(target, budgets, run):
    return max(gaps_in(run(largest_with(target, budgets, run) or budgets[0])))


TABLE = {
    "chunk_sizes": {
        "name": "chunk_sizes",
        "checks": {"chunk_sizes_right": check_sizes},
        "right": [sizes_by_the_package, sizes_by_division],
        "wrong": [
            (decodes_not_charged, "same budget"),
            (last_token_apart, "of its own"),
            (last_token_left_out, "the prompt has 14"),
            (a_token_for_each_chunk, "the prompt has 14"),
            (exact_fit_cut_in_two, "of its own"),
            (a_chunk_of_nothing, "at least one token"),
            (one_over, "same budget"),
            (rest_goes_first, "as much as is left"),
            (equal_chunks, "as much as is left"),
            (lambda prompt, budget, decodes: len(sizes_by_division(prompt, budget, decodes)), "a list"),
            (lambda prompt, budget, decodes: [4, 4, 2], "the prompt has 14"),  # the example
            (lambda prompt, budget, decodes: [prompt], "than its budget"),
            (lambda *case: list(sizes_by_division(*case)) or [0], "no chunk can begin"),
        ],
    },
    "schedule": {
        "name": "BudgetScheduler",
        "checks": {"schedule_budget": check_budget, "schedule_order": check_order, "schedule_cap": check_cap},
        "right": [Budget, InOrderOfAdmission, by_the_package],
        "wrong": [
            (whole_prompts, "does not fit is cut"),
            (whole_prompts_that_fit, "cut"),
            (prompts_or_decodes, "no token for A"),
            (budget_of_the_example, "could be spent"),
            (BudgetOfEachSequence, "one of the whole step"),
            (DecodesNotCharged, "part of the budget"),
            (PromptsBeforeDecodes, "no token for A"),
            (OneChunkAStep, "leaves out"),
            (OneNewcomerAStep, "a slot is free"),
            (RestIsWasted, "a slot is free"),
            (ExactFitCutInTwo, "has 3 of the 4"),
            (LastTokenApart, "has 3 of the 4"),
            (EveryChunkYields, "its prompt has begun"),
            (ChunkOfNothing, "a chunk of 0 tokens"),
            (EntersWithNothing, "without a chunk"),
            (OneOver, "tokens ("),
            (NewcomersOvertake, "behind it in line"),
            (LastComeFirst, "behind it in line"),
            (ShortestFirst, "behind it in line"),
            (EqualShares, "behind it in line"),
            (PromptsWhenNobodyWrites, "leaves out B"),
            (NoCap, "more than the cap"),
            (CapAtEntryOnly, "more than the cap"),
            (CapOfAllPrompts, "leaves out B"),
            (CapEndsTheStep, "leaves out B"),
            (DoesNotSayWhoEntered, "does not name"),
            (TurnsAllAway, "turned away"),
            (lambda max_num_seqs: Budget(max_num_seqs), "TypeError"),
            (StartsFromZero, "from position 0"),
        ],
    },
    "bill": {
        "name": "bill",
        "checks": {"bill_gap": check_gap, "bill_ttft": check_ttft},
        "right": [bill_with, bill_by_a_loop],
        "wrong": [
            (last_chunk_yields_nothing, "comes out of that step"),
            (every_chunk_yields, "only the last chunk"),
            (no_decodes_in_the_step, "in the step too"),
            (ttft_without_decodes, "each step longer"),
            (ttft_from_the_first_step, "when does it arrive"),
            (mean_gap, "the mean"),
            (gap_of_the_whole_prefill, "in every step"),
            (gap_without_the_newcomer, "without the newcomer"),
            (first_chunk_is_the_longest, "which step is the longest"),
            (ttft_first, "which step is the longest"),
            (one_big_step, "which step"),
            (zero_if_it_never_gets_on, "never a token"),
            (bill_in_ms, "which step"),
            (lambda *case: bill_with(*case)[0], "two numbers"),
        ],
    },
    "largest_budget": {
        "name": "largest_budget",
        "checks": {"largest_budget_right": check_largest_budget},
        "right": [largest_with, largest_from_above],
        "wrong": [
            (budgets_with_p99, "the longest gap is"),
            (mean_of_the_gaps, "the longest gap is"),
            (by_tpot, "the longest gap is"),
            (ttft_is_a_gap, "between two tokens"),
            (length_of_the_steps, "between two tokens"),
            (below_the_target_only, "keeps the target"),
            (smallest_budget, "keeps the target"),
            (last_in_the_list, "keeps the target"),
            (none_if_none, "the longest gap is"),
            (the_first_request_alone, "the longest gap is"),
            (its_gap_instead, "none of the budgets"),
            (lambda target, budgets, run: [max(budgets)], "one number"),
            (lambda target, budgets, run: 8, "keeps the target"),  # right for the first case
        ],
    },
}
BLOCKS = {"chunks": "whole blocks"}
OTHER_YEAR = [
    ("chunk_sizes_right", BLOCKS, sizes_by_division, "blocks of 4"),
    ("schedule_order", BLOCKS, Budget, "blocks of 4"),
    ("schedule_cap", BLOCKS, Budget, "blocks of 4"),
    ("bill_ttft", {"arrives": "just before a step begins"}, bill_with, "when does it arrive"),
    ("largest_budget_right", {"target_on": "p99"}, largest_with, "keeps the target too"),
]
