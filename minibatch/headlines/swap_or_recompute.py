"""A request is thrown out: move its K and V to the host and back, or compute them again? By block size.

The vLLM paper (Kwon et al., SOSP 2023, arXiv 2309.06180), section 7.3 and figure 19: OPT-13B on an A100 of 40 GB.
"""

from collections.abc import Sequence
from dataclasses import replace

from minibatch.headlines.base import Finding, Headline
from minibatch.headlines.curves import arriving, serve
from minibatch.headlines.memory_policies import POSITIONS, card
from minibatch.simulate.result import summary
from minibatch.simulate.roofline import Roofline
from minibatch.workload import Planned, sharegpt_like

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MEDIUM = (16, 32, 64)
TOKENS = 256  # stored when it is thrown out
HOST_BLOCKS = 1 << 20  # so many that all find a place
SLOWER_LINK = 12e9  # bytes/s: half of ours
PAPER = "vLLM paper, section 7.3"


def swap_or_recompute(
    requests: int = 500, rate: float = 2.4, sizes: Sequence[int] = BLOCK_SIZES, tokens: int = TOKENS, seed: int = 0
) -> Headline:
    """Seconds for one victim by block size, and both ways end to end: `requests` ShareGPT-like ones at a rate just
    above what vLLM carries. About half a minute on one core.
    """
    planned = arriving(sharegpt_like(requests, seed), rate, seed)
    rows = [_row(size, tokens, planned) for size in sizes]
    most = max(row["recompute"] / row["swap"] for row in rows)
    slower = max(_recompute(tokens) / _swap(size, tokens, SLOWER_LINK) for size in sizes)
    medium = [row["recompute_per_token"] / row["swap_per_token"] for row in rows if row["block_size"] in MEDIUM]
    small, large = rows[0], rows[-1]
    findings = (
        Finding(
            "recompute: longest / shortest over block sizes", _spread(rows, "recompute"), 1.0, PAPER + ": constant"
        ),
        Finding(f"swap: blocks of {sizes[0]} / blocks of {sizes[-1]}", small["swap"] / large["swap"]),
        Finding(
            "recompute / swap, the most over block sizes",
            most,
            1.2,
            PAPER + ': "never higher than 20% of swapping\'s latency", read as at most 20 % above it, for the same '
            "paragraph calls swapping the better of the two for large blocks",
            f"The link decides: copies reach 25 GB/s here; if they reach {SLOWER_LINK / 1e9:.0f}, it is {slower:.2f}. "
            "What the paper's reached it does not say.",
        ),
        Finding("end to end, blocks of 16 to 64: recompute / swap, least", min(medium), 1.0, PAPER + ": comparable"),
        Finding("end to end, blocks of 16 to 64: recompute / swap, most", max(medium), 1.0, PAPER + ": comparable"),
    )
    first = next((row["block_size"] for row in rows if row["swap"] < row["recompute"]), None)
    best = f"the quicker of the two from blocks of {first} on" if first else "never the quicker of the two"
    sentence = (
        f"To compute {tokens} tokens again takes {1e3 * small['recompute']:.0f} ms whatever the block size; to move "
        f"them out and in takes {1e3 * small['swap']:.0f} ms in blocks of {sizes[0]} and {1e3 * large['swap']:.0f} ms "
        f"in blocks of {sizes[-1]}: {best}."
    )
    question = "A victim of preemption: swap its K and V out and in, or compute them again?"
    return Headline("swap_or_recompute", question, tuple(rows), findings, sentence)


def _row(size: int, tokens: int, planned: list[Planned]) -> dict:
    """One block size: a victim alone, and the run."""
    row = {"block_size": size, "tokens": tokens, "swap": _swap(size, tokens), "recompute": _recompute(tokens)}
    for way, host_blocks in (("recompute", None), ("swap", HOST_BLOCKS)):
        cost = replace(card(), block_size=size)
        found = summary(serve("vllm-v0", planned, cost, POSITIONS, block_size=size, host_blocks=host_blocks))
        row |= {f"{way}_per_token": found.per_token_mean, f"{way}_preemptions": found.preemptions}
    return row


def _swap(size: int, tokens: int, link: float | None = None) -> float:
    """Seconds for all blocks of a sequence, out and in again."""
    cost = replace(card(), block_size=size)
    if link is not None:
        where = replace(cost.deployment, card=replace(cost.deployment.card, host_link=link))
        cost = replace(cost, deployment=where)
    return 2 * -(-tokens // size) * cost.swap_seconds


def _recompute(tokens: int) -> float:
    """Seconds for a step that computes them as one prompt."""
    cost: Roofline = card()
    return cost.computing(tokens, tokens, tokens * (tokens + 1) // 2)


def _spread(rows: list[dict], key: str) -> float:
    return max(row[key] for row in rows) / min(row[key] for row in rows)
