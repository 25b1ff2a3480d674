"""A published figure beside ours: the rows behind both, and where the two part, why. Introduced in notebook 09."""

from dataclasses import dataclass
from textwrap import fill

FAR = 0.25  # a difference above this share needs a reason


@dataclass(frozen=True, slots=True)
class Finding:
    """One number, as published and as found here. `published` is a number, a range, or None where nobody gave one."""

    what: str
    ours: float
    published: float | tuple[float, float] | None = None
    source: str = ""  # of the published number
    why: str = ""  # the two differ

    def __post_init__(self):
        if self.published is not None and not self.source:
            raise ValueError(f"source: {self.what!r} has a published number and no source")
        if abs(self.off) > FAR and not self.why:
            raise ValueError(f"why: {self.what!r} is {self.ours:.4g}, published {self.published}; say why they differ")

    @property
    def off(self) -> float:
        """How far ours lies outside what was published, as a share of its nearest end; 0 inside a range."""
        if self.published is None:
            return 0.0
        least, most = self.published if isinstance(self.published, tuple) else (self.published, self.published)
        nearest = min(max(self.ours, least), most)
        return self.ours / nearest - 1


@dataclass(frozen=True, slots=True)
class Headline:
    """An experiment: the rows behind its picture, the numbers that people quote, and what it comes to."""

    name: str  # of its figure: figures/<name>.png
    question: str
    rows: tuple[dict, ...]  # plain numbers and words
    findings: tuple[Finding, ...]
    sentence: str  # what it shows

    def table(self) -> str:
        """The findings as text, a row each, at most 100 characters wide."""
        wide = max([54, *(len(finding.what) for finding in self.findings)])
        lines = [f"{'':{wide}}{'published':>16}{'here':>10}"]
        for finding in self.findings:
            lines.append(f"{finding.what:{wide}}{_shown(finding.published):>16}{finding.ours:10.3g}")
            if finding.why:
                lines.append(fill(finding.why, 100, initial_indent="    ", subsequent_indent="    "))
        return "\n".join(lines)


def _shown(published: float | tuple[float, float] | None) -> str:
    if published is None:
        return "-"
    return "{:.4g} to {:.4g}".format(*published) if isinstance(published, tuple) else f"{published:.4g}"
