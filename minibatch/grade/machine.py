"""What a child process gets of this machine: an environment, caches that are ours, and an eye on its memory."""

import os
from pathlib import Path

import minibatch

KEPT = (  # of the environment; whatever else a teacher has there is not a student's business
    *("PATH", "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "LANG", "LC_ALL", "LC_CTYPE"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "CONDA_PREFIX", "CXX", "NUMBER_OF_PROCESSORS"),
)
HOMES = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
HOMES += ("MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")


class Memory:
    """What a process and its children hold, in bytes."""

    def __init__(self, pid: int):
        import psutil  # comes with ipykernel; the command has looked for it

        self.gone = psutil.Error
        try:
            self.process = psutil.Process(pid)
        except psutil.Error:
            self.process = None

    def children(self) -> list:
        try:
            return self.process.children(recursive=True) if self.process else []
        except self.gone:
            return []

    def used(self) -> int:
        total = 0
        for process in [self.process, *self.children()]:
            try:
                total += process.memory_info().rss if process else 0
            except self.gone:
                continue
        return total


def root() -> str:
    """The folder that the package is imported from."""
    return str(Path(minibatch.__file__).resolve().parents[1])


def kernel_cache() -> str:
    """Where minibatch/cuda keeps what it has compiled; lab 6 would else compile everything for each submission."""
    from platformdirs import user_cache_path

    return os.environ.get("MINIBATCH_CACHE") or str(user_cache_path("minibatch", appauthor=False))


def font_lists() -> list[Path]:
    """matplotlib's, if it has been used on this account."""
    named, cache = os.environ.get("MPLCONFIGDIR"), os.environ.get("XDG_CACHE_HOME")
    folders = (
        [Path(named)] if named else [Path(cache or Path.home() / ".cache", "matplotlib"), Path.home() / ".matplotlib"]
    )
    return next(filter(None, (sorted(folder.glob("fontlist-*.json")) for folder in folders)), [])


def environment(home: Path) -> dict[str, str]:
    """The variables of a child: few of ours, and `home` wherever something would be kept."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return (
        kept
        | dict.fromkeys(HOMES, str(home))
        | {
            "MINIBATCH_CACHE": kernel_cache(),
            "MPLBACKEND": "Agg",
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )
