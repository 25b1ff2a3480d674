"""Figure 2 of the vLLM paper, ours beside the published bars. See `headlines.memory_policies.kv_use`."""

from matplotlib.figure import Figure

from minibatch.memory.waste import Split
from minibatch.plot.headline_page import findings_alt
from minibatch.plot.waste import waste

WIDTH = 8.0  # inches


def draw(headline) -> Figure:
    """Two bars a policy. Of vLLM the paper gives the used share alone; the rest is left blank."""
    bars = {}
    for row in headline.rows:
        bars[f"{row['label']}, here"] = Split(row["used"], row["reserved"], row["internal"], row["external"])
        bars[f"{row['label']}, published"] = Split(*(row[f"published_{kind}"] or 0.0 for kind in Split._fields))
    return waste(bars, together=2, width=WIDTH, title=headline.question)


def alt(headline) -> str:
    """The picture in words."""
    return "Stacked bars of a K/V pool by what its positions hold, two a policy. " + findings_alt(headline)
