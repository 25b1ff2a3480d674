"""Real systems as rows of one table, each composed from the four axes. Introduced in notebook 09.

    scheduler = system("vllm-v1").build(num_positions=15_728, max_model_len=2048, token_budget=512)

A row says which knob of ours is which of theirs, with their default, and in its note where ours differs. The rules
are those of the sources that each row names; `tests/test_systems_*.py` holds every one of them to its rule.
"""

from difflib import get_close_matches

from minibatch.schedulers.row import Knob, System
from minibatch.schedulers.rows_paged import PAGED
from minibatch.schedulers.rows_preempting import PREEMPTING
from minibatch.schedulers.rows_regions import LLAMA_CPP, REGIONS

SYSTEMS: dict[str, System] = {row.name: row for row in (*REGIONS, *PREEMPTING, *PAGED, LLAMA_CPP)}


def system(name: str) -> System:
    """The row of that name. Raises ValueError, which lists all of them and the nearest."""
    if name in SYSTEMS:
        return SYSTEMS[name]
    near = get_close_matches(str(name).lower(), SYSTEMS, 1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(f"system={name!r}: unknown{hint} Known are {', '.join(SYSTEMS)}")


__all__ = ["SYSTEMS", "Knob", "System", "system"]
