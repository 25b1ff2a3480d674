"""A pen for SVG: a few shapes, written from top to bottom into one string."""

from html import escape

from minibatch.plot.colours import EMPTY, INK, tint

GLYPH = 0.62  # width of a character, of the font size: on the wide side


def number(value: float) -> str:
    """A coordinate to a tenth of a pixel, as short as it can be written."""
    return f"{value:.1f}".removesuffix(".0")


class Pen:
    """Coordinates in pixels; every y counts from `down`, the place reached so far."""

    def __init__(self, font: int):
        self.font, self.down, self.parts = font, 0.0, []
        self.hatched: dict[str, None] = {}  # colours, in the order met

    def wide(self, text: str) -> float:
        """About how wide a text comes out."""
        return GLYPH * self.font * len(text)

    def rect(self, x: float, y: float, width: float, height: float, fill: str, stroke: str = "") -> None:
        """A box."""
        where = f'x="{number(x)}" y="{number(self.down + y)}" width="{number(width)}" height="{number(height)}"'
        self.parts.append(f'<rect {where} fill="{fill}"' + (f' stroke="{stroke}"/>' if stroke else "/>"))

    def line(self, x: float, y: float, right: float, bottom: float, colour: str, width: float = 1) -> None:
        """A line from (x, y) to (right, bottom)."""
        path = f"M{number(x)} {number(self.down + y)}L{number(right)} {number(self.down + bottom)}"
        self.parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="{number(width)}"/>')

    def area(self, points: list[tuple[float, float]], fill: str, stroke: str = "none") -> None:
        """A closed shape."""
        path = "L".join(f"{number(x)} {number(self.down + y)}" for x, y in points)
        self.parts.append(f'<path d="M{path}Z" fill="{fill}" stroke="{stroke}"/>')

    def text(
        self, x: float, y: float, text: str, colour: str = INK, anchor: str = "start", weight: str = "normal"
    ) -> None:
        """A text whose middle stands at height y."""
        style = f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += f' font-weight="{weight}"' if weight != "normal" else ""
        where = f'x="{number(x)}" y="{number(self.down + y + 0.36 * self.font)}"'
        self.parts.append(f'<text {where} fill="{colour}"{style}>{escape(text)}</text>')

    def hatch(self, colour: str) -> str:
        """A fill: the hatching of a prefill in this colour."""
        self.hatched[colour] = None
        return f"url(#hatch-{colour[1:]})"

    def document(self, width: float, words: str) -> str:
        """All of it, on opaque white. `words` is what a screen reader says."""
        size = f'width="{number(width)}" height="{number(self.down)}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {number(width)} {number(self.down)}"'
        head += f' role="img" aria-label="{escape(words)}"'
        head += f' font-family="DejaVu Sans, Verdana, sans-serif" font-size="{self.font}">'
        patterns = "".join(map(_pattern, self.hatched))
        ground = f'<rect width="100%" height="100%" fill="{EMPTY}"/>'
        return f"{head}<defs>{patterns}</defs>{ground}{''.join(self.parts)}</svg>"


def _pattern(colour: str) -> str:
    tile = 'width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"'
    stripes = f'<rect width="6" height="6" fill="{tint(colour)}"/><rect width="2.2" height="6" fill="{colour}"/>'
    return f'<pattern id="hatch-{colour[1:]}" {tile}>{stripes}</pattern>'
