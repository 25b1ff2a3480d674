"""Solutions to the exercises of notebook 04. Try them yourself first: the checks help."""


def split_budget(running: list[int], waiting: list[int], free_slots: int, budget: int, cap: int) -> list[int]:
    """`Chunked.fill` on numbers: those who run, then whoever finds a slot and something left of the budget."""
    counts = []
    for place, missing in enumerate(running + waiting):
        enters = place >= len(running)
        if enters and (not budget or place - len(running) == free_slots):
            break
        count = min(missing, budget, cap)
        counts.append(count)
        budget -= count
    return counts


def largest_gap(mix: str, running: int, prompt: int, budget: int, constant: float, per_token: float) -> float:
    """Prefill first: two steps from one token to the next, the prompt's and the decode of all, newcomer included."""
    if mix == "prefill_first":
        return (constant + per_token * prompt) + (constant + per_token * (running + 1))
    tokens = running + prompt
    if mix == "chunked":
        tokens = min(tokens, budget)
    return constant + per_token * tokens


def budget_for(target: float, running: int, constant: float, per_token: float) -> int:
    """The rule turned around and rounded down; a prompt needs at least one token beside the decodes."""
    budget = int((target - constant) // per_token)
    return budget if budget >= running + 1 else 0
