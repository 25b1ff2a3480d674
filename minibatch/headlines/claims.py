"""Every claim of the three articles that can be checked: confirmed, bounded or corrected, and where that can be seen.

Article 1: "O lote que nunca fecha". 2: "Lotes contínuos a partir dos primeiros princípios". 3: "Continuous batching:
mais capacidade para servir LLMs". The claims are paraphrased; numbers in the answers come from the committed headlines
and from `facts()`, which computes them on the spot.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from minibatch.headlines.base import Headline

CONFIRMED, BOUNDED, CORRECTED = "confirmed", "bounded", "corrected"
NOTEBOOKS = {
    "00": "00_start_here",
    "01": "01_why_batch",
    "02": "02_static_batching",
    "03": "03_iteration_level",
    "04": "04_chunked_prefill",
    "05": "05_kv_memory",
    "06": "06_paged_kv_cache",
    "07": "07_preemption_and_admission",
    "09": "09_operating_limit",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and what became of it. `why` may name numbers: {headline[what of a finding]:.1f} or {facts[name]:.1f}.

    `where` is "notebook 04, section 6", "headline decomposition" or "command systems"; several are joined by "; ".
    """

    article: int
    section: str  # its heading there
    claim: str
    verdict: str
    why: str
    where: str

    def __post_init__(self):
        if self.verdict not in (CONFIRMED, BOUNDED, CORRECTED):
            raise ValueError(f"verdict={self.verdict!r}: {CONFIRMED}, {BOUNDED} or {CORRECTED}")


def claims(headlines: Mapping[str, Headline] | None = None) -> list[Claim]:
    """All of them in the articles' order, with their numbers put in; of these headlines, or of the committed ones."""
    from minibatch.headlines import claims_1, claims_2, claims_3, store
    from minibatch.headlines.facts import facts

    found = {name: {one.what: one.ours for one in each.findings} for name, each in (headlines or store.read()).items()}
    numbers = found | {"facts": facts()}
    parts = (claims_1.CLAIMS, claims_2.CLAIMS, claims_3.CLAIMS)
    return [replace(one, why=one.why.format_map(numbers)) for part in parts for one in part]


def claims_page(headlines: Mapping[str, Headline] | None = None) -> str:
    """The same as a page of Markdown, for figures/claims.md."""
    each = claims(headlines)
    counts = Counter(one.verdict for one in each)
    lines = [
        "# The three articles, claim by claim",
        "",
        f"{len(each)} claims: {counts[CONFIRMED]} confirmed, {counts[BOUNDED]} bounded (true within limits that the "
        f"article does not name), {counts[CORRECTED]} corrected. Numbers are simulated (notebook 09) unless a source "
        "is named. Written by `python -m minibatch figures claims`; do not edit.",
    ]
    for article in (1, 2, 3):
        lines += ["", f"## Article {article}", "", "| section | claim | verdict | why | see |", "|---|---|---|---|---|"]
        lines += [
            f"| {one.section} | {one.claim} | **{one.verdict}** | {one.why} | {_linked(one.where)} |"
            for one in each
            if one.article == article
        ]
    return "\n".join(lines) + "\n"


def _linked(where: str) -> str:
    return "; ".join(map(_link, where.split("; ")))


def _link(place: str) -> str:
    kind, _, rest = place.partition(" ")
    if kind == "notebook":
        return f"[{place}](../notebooks/{NOTEBOOKS[rest[:2]]}.ipynb)"
    return f"[headline {rest}]({rest}.png)" if kind == "headline" else f"`python -m minibatch {rest}`"
