"""Colours: one per request, in order of submission, safe for colour-blind eyes.

The palette is Paul Tol's qualitative scheme "muted", whole (technical note SRON/EPS/TN/09-002,
personal.sron.nl/~pault): nine colours that stay apart under protanopia, deuteranopia and tritanopia. The tenth request
begins again at the first colour, and greyscale print fails for every palette of this size, so each picture also writes
the request's id.
"""

from collections.abc import Mapping, Sequence

from minibatch.trace import Trace

PALETTE = ("#CC6677", "#332288", "#DDCC77", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499")
DEAD_GREY = "#C4C4C4"  # a row computed for a finished request
FLATLINE = "#8A8A8A"  # the line through it
EMPTY = "#FFFFFF"
INK, PALE_INK = "#1A1A1A", "#FFFFFF"
QUIET = "#5F6368"  # axes, ticks, captions
RULE = "#D9DCE0"  # frames and grid
FAILED_RED = "#B00020"  # a step that raised
USED, TAKEN = "#4A5563", "#C3CAD4"  # K/V positions that hold a token; that are taken and do not
PALE = "#DCEFFB"  # a share between two others: its grey is far from that of each

Traces = Trace | Sequence[Trace] | Mapping[str, Trace]  # what every picture accepts: one, several, several by name


def named(traces: Traces) -> list[tuple[str, Trace]]:
    """The traces of a picture with the name each goes by: the key of a mapping, else its scheduler's name."""
    if isinstance(traces, Trace):
        return [(traces.scheduler, traces)]
    pairs = list(traces.items()) if isinstance(traces, Mapping) else [(trace.scheduler, trace) for trace in traces]
    if not pairs:
        raise ValueError("traces is empty: a picture needs at least one Trace")
    return pairs


def palette_of(traces: Traces) -> dict[str, str]:
    """Colour of every request. In a comparison a request keeps the colour it has in the first trace that knows it."""
    ids = dict.fromkeys(request_id for _, trace in named(traces) for request_id in trace.requests)
    return {request_id: PALETTE[index % len(PALETTE)] for index, request_id in enumerate(ids)}


def colour_of(request_id: str, traces: Traces) -> str:
    """Colour of one request, as "#RRGGBB"."""
    return palette_of(traces)[request_id]


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def luminance(colour: str) -> float:
    """Relative luminance, 0 (black) to 1 (white), as WCAG 2 defines it."""
    shares = [channel / 255 for channel in _channels(colour)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear))


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours, 1 to 21, as WCAG 2 defines it. Text wants 4.5 or more."""
    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def ink(ground: str) -> str:
    """The text colour, dark or white, that reads better on this ground."""
    return max((INK, PALE_INK), key=lambda colour: contrast(colour, ground))


def tint(colour: str, share: float = 0.25) -> str:
    """`share` of the colour, the rest white: the ground under the hatching of a prefill."""
    return "#" + "".join(f"{round(255 - share * (255 - channel)):02X}" for channel in _channels(colour))
