"""Where a figure goes: PNG bytes, a notebook cell with alt text, a file. Same figure, same bytes."""

import io
import sys
from base64 import b64encode
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

from minibatch.plot.page import own_style


def png(fig: Figure, dpi: int = 100, colours: int = 64) -> bytes:
    """The figure as a PNG of at most `colours` colours: about a quarter of the usual size."""
    full, small = io.BytesIO(), io.BytesIO()
    with own_style():
        fig.savefig(full, format="png", dpi=dpi, metadata={"Software": None})
    full.seek(0)
    Image.open(full).convert("RGB").quantize(colours, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def picture(image: bytes, words: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """A notebook output, data and metadata. Viewers differ in which of the two they read the alt text from."""
    return {"image/png": b64encode(image).decode(), "text/plain": words}, {"image/png": {"alt": words}}


def show(fig: Figure, alt: str, dpi: int = 100) -> None:
    """Show a figure in the notebook, once, with its alt text. In a plain terminal the alt text is printed."""
    if not in_ipython():
        print(alt)
        return
    from IPython.display import display

    data, metadata = picture(png(fig, dpi), alt)
    display(data, metadata=metadata, raw=True)
    if pyplot := sys.modules.get("matplotlib.pyplot"):  # a figure made with pyplot would be shown a second time
        pyplot.close(fig)


def in_ipython() -> bool:
    """True inside IPython or a notebook, which has then imported IPython already."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def save(fig: Figure, path: str | Path, dpi: int = 100, colours: int = 64) -> None:
    """Write the figure to a .png or an .svg file; `dpi` and `colours` are for PNG."""
    path = Path(path)
    if path.suffix == ".png":
        path.write_bytes(png(fig, dpi, colours))
    elif path.suffix == ".svg":
        with own_style(), matplotlib.rc_context({"svg.hashsalt": "minibatch", "svg.fonttype": "none"}):
            fig.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    else:
        raise ValueError(f"path={str(path)!r}: a figure is saved as .png or .svg")
