"""Python, the packages, Jupyter's widgets and kernel, fonts: is what the course needs installed, and together?"""

import importlib.metadata as metadata
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import minibatch
from minibatch.commands.doctor_finding import FINE, PROBLEM, REMARK, Finding

INSTALL = f"run `{sys.executable} -m pip install -r requirements.txt` in the repository"
NEEDED = {  # the oldest that will do, as in pyproject.toml
    "torch": "2.4",
    "numpy": "1.26",
    "matplotlib": "3.8",
    "ipywidgets": "8.1",
    "tokenizers": "0.20",
    "safetensors": "0.4",
    "gguf": "0.10",
    "jinja2": "3.1",
    "tqdm": "4.66",
    "platformdirs": "4",
}
TOOLS = {"jupyterlab": "opens the notebooks", "ipykernel": "runs them", "pytest": "runs the tests"}
MANAGERS = {"jupyterlab_widgets": 3, "widgetsnbextension": 4}  # major versions that belong to ipywidgets 8
MANAGER = Path("@jupyter-widgets", "jupyterlab-manager", "package.json")
GLYPHS = "·×…→±"  # beyond ASCII, in pictures
WHERE = "import importlib.util as u; found = u.find_spec('minibatch'); print(found.origin if found else '')"


def python() -> Iterator[Finding]:
    """The interpreter. One that is too old could not have come here."""
    version, machine = platform.python_version(), f"{platform.system()} {platform.machine()}"
    state = f"{version} on {machine}, {sys.executable}"
    bits = sys.maxsize > 2**32
    yield Finding("python", state, *(() if bits else (PROBLEM, "install a 64-bit Python: torch has no other")))


def package() -> Iterator[Finding]:
    """This package, and whether a notebook, which runs in another folder, finds the same."""
    here = Path(minibatch.__file__).resolve()
    state = f"{minibatch.__version__}, {_installed()}, {here.parent}"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", WHERE], cwd=folder, capture_output=True, text=True, timeout=60)
    found = done.stdout.strip()
    if not found:
        yield Finding("minibatch", f"{state}; cannot be imported from another folder", PROBLEM, INSTALL)
    elif Path(found).resolve() != here:
        cure = f"notebooks would use the other one: {INSTALL}"
        yield Finding("minibatch", f"{state}; from another folder, {found} is imported", PROBLEM, cure)
    else:
        yield Finding("minibatch", state)


def packages() -> Iterator[Finding]:
    """The packages that are imported, and the tools around them."""
    for name, oldest in NEEDED.items():
        version = _version(name)
        if version is None:
            yield Finding(name, "missing", PROBLEM, INSTALL)
        elif _numbers(version) < _numbers(oldest):
            yield Finding(name, f"{version}, older than {oldest}", PROBLEM, INSTALL)
        else:
            yield Finding(name, version)
    for name, does in TOOLS.items():
        version = _version(name)
        yield Finding(name, version) if version else Finding(name, f"missing; it {does}", REMARK, INSTALL)


def widgets() -> Iterator[Finding]:
    """The parts of ipywidgets that live in the browser: they come apart if only one of them is updated."""
    if _version("ipywidgets") is None:
        return
    for name, major in MANAGERS.items():
        version = _version(name)
        if version is None or _numbers(version)[:1] != (major,):
            cure = f"run `{sys.executable} -m pip install --force-reinstall {name}=={major}.*`, start Jupyter anew"
            state = f"{version or 'missing'}; ipywidgets 8 needs {name} {major}, or sliders stay empty"
            yield Finding(name, state, REMARK, cure)
        else:
            yield Finding(name, version)
    from jupyter_core.paths import jupyter_path

    if not any((Path(folder) / MANAGER).exists() for folder in jupyter_path("labextensions")):
        cure = f"run `{sys.executable} -m pip install --force-reinstall jupyterlab_widgets`, start Jupyter anew"
        yield Finding("lab extension", "JupyterLab will not find its widget manager", REMARK, cure)


def kernel() -> Iterator[Finding]:
    """The kernel that notebooks start by default: is it this Python?"""
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    cure = f"run `{sys.executable} -m ipykernel install --sys-prefix`, and choose that kernel in the notebook"
    try:
        command = Path(KernelSpecManager().get_kernel_spec("python3").argv[0])
    except NoSuchKernel:
        yield Finding("notebook kernel", "none is called python3", REMARK, cure)
        return
    ours = not command.is_absolute() or command.parent.parent == Path(sys.prefix)
    state = f"{command}" if ours else f"{command}, which is another Python than this one"
    yield Finding("notebook kernel", state, *(() if ours else (REMARK, cure)))


def fonts() -> Iterator[Finding]:
    """The font of the pictures, its glyphs, and the hatching of prefills."""
    import matplotlib
    from matplotlib import font_manager

    cure = f"run `{sys.executable} -m pip install --force-reinstall matplotlib`, which brings DejaVu Sans"
    try:
        path = font_manager.findfont("DejaVu Sans", fallback_to_default=False)
        lacking = [glyph for glyph in GLYPHS if not font_manager.get_font(path).get_char_index(ord(glyph))]
    except (ValueError, OSError) as error:
        forget = f"delete {matplotlib.get_cachedir()}, matplotlib's list of fonts; else {cure}"
        yield Finding("font", f"DejaVu Sans is not found ({error})", REMARK, forget)
        return
    state = f"{path}, without {' '.join(lacking)}" if lacking else path
    yield Finding("font", state, *((REMARK, cure) if lacking else ()))
    drawn = 0.05 < _ink_of_a_hatch() < 0.95
    yield Finding("hatching", "drawn" if drawn else "comes out plain", *(() if drawn else (REMARK, cure)))
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    utf8 = encoding in ("utf8", "utf8sig")
    state = sys.stdout.encoding if utf8 else f"{sys.stdout.encoding}: text pictures come in plain letters"
    yield Finding("terminal", state, FINE)


def _ink_of_a_hatch() -> float:
    """The share of a hatched square that is not white."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(0.5, 0.5))
    figure.add_artist(Rectangle((0, 0), 1, 1, facecolor="white", edgecolor="black", linewidth=0, hatch="////"))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    reds = bytes(canvas.buffer_rgba())[::4]
    return sum(red < 128 for red in reds) / len(reds)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """2.13.0+cpu: (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", re.match(r"[\d.]*", version)[0]))


def _installed() -> str:
    """How pip installed this package, if it did."""
    told = [one.read_text("direct_url.json") for one in metadata.distributions(name="minibatch")]
    if any(text and '"editable": true' in text for text in told):
        return "editable"
    return "installed" if any(told) or "site-packages" in str(find_spec("minibatch").origin) else "not installed by pip"
