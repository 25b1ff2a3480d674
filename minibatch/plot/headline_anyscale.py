"""The picture of headline `anyscale`: the same runs, tokens counted with prompts and without."""

from matplotlib.figure import Figure

from minibatch.plot.colours import EMPTY
from minibatch.plot.headline_page import PUBLISHED
from minibatch.plot.headline_style import STYLES, log_ticks, plain, question
from minibatch.plot.page import own_style


def draw(headline) -> Figure:
    """Left: prompts and answers per second, with the published numbers; right: answers per second."""
    with own_style():
        figure = Figure(figsize=(9, 4.2), facecolor=EMPTY, layout="constrained")
        question(figure, headline.question)
        panels = figure.subplots(1, 2)
        ours = [row for row in headline.rows if "system" in row]
        caps = sorted({row["cap"] for row in ours})
        for axes, key, words in zip(panels, ("theirs", "outputs"), ("counted with prompts", "answers alone")):
            plain(axes)
            _curves(axes, ours, key)
            axes.set_title(words, fontsize=10)
            log_ticks(axes.xaxis, caps)
            axes.set(xlabel="cap on the answers, tokens", ylabel="tokens/s", xlim=(caps[0] * 0.8, caps[-1] * 3.6))
        _published(panels[0], [row for row in headline.rows if "published" in row])
        log_ticks(panels[0].yaxis, (100, 200, 500, 1000, 2000, 5000))
        panels[0].set_ylim(65, 8000)
        panels[1].set_ylim(0, None)
        handles, labels = panels[1].get_legend_handles_labels()
        star = panels[0].plot([], [], **PUBLISHED)[0]
        figure.legend(
            [*handles, star], [*labels, "published"], loc="outside lower center", ncols=5, fontsize=8.5, frameon=False
        )
    return figure


def _curves(axes, rows, key: str) -> None:
    for system, style in zip(dict.fromkeys(row["system"] for row in rows), STYLES):
        points = [row for row in rows if row["system"] == system]
        axes.plot([row["cap"] for row in points], [row[key] for row in points], label=system, **style)


def _published(axes, rows: list[dict]) -> None:
    for row in rows:
        place = (row["cap"] * 1.12, row["theirs"])
        axes.plot(*place, **PUBLISHED)
        axes.annotate(row["published"], place, (7, 0), textcoords="offset points", va="center", size=7.5)


def alt(headline) -> str:
    """The picture in words."""
    return (
        f"Tokens per second against the cap on answers, twice: with prompts counted, and without. {headline.sentence}"
    )
