"""Where compiled libraries are kept, each made once.

Safe when two processes build at once (one compiles, the other waits), when a build is killed (a library appears whole
or not at all, and the lock dies with its holder), and when the home is read-only.
"""

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from minibatch.cuda.errors import KernelUnavailable

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where nothing is compiled
    fcntl = None

log = logging.getLogger(__name__)


def cache_folders() -> list[Path]:
    """Where libraries are kept: $MINIBATCH_CACHE, else the system's place for caches, else a folder for temporary
    files. The first that can be written to is used."""
    named = os.environ.get("MINIBATCH_CACHE")
    if named:
        return [Path(named) / "kernels"]
    spare = Path(tempfile.gettempdir()) / f"minibatch-kernels-{_user()}"
    try:
        from platformdirs import user_cache_path
    except ModuleNotFoundError:  # gpu_check runs where there is little but torch and nvcc
        return [spare]
    return [user_cache_path("minibatch", appauthor=False) / "kernels", spare]


def cached(name: str, make: Callable[[Path], Path]) -> Path:
    """The file of this name, made if no cache folder has it. `make` gets a folder to work in and returns its file."""
    if fcntl is None:
        raise KernelUnavailable("nothing is compiled on Windows: use WSL, or MINIBATCH_KERNEL=torch and no native")
    for folder in cache_folders():
        if (folder / name).exists() and _is_ours(folder):
            return folder / name
    folder = writable_folder()
    path = folder / name
    with _lock(folder / f"{name}.lock"):
        if path.exists():  # made by the process that held the lock
            return path
        for left_over in folder.glob(f"{name}.tmp-*"):  # of builds that were killed: who holds the lock is alone
            shutil.rmtree(left_over, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{name}.tmp-") as work:
            made = make(Path(work))
            if made.with_suffix(".txt").exists():
                os.replace(made.with_suffix(".txt"), path.with_suffix(".txt"))
            os.replace(made, path)  # whole or not at all, and last
    return path


def writable_folder() -> Path:
    """The first of `cache_folders` that can be written to and is ours."""
    refused = []
    for folder in cache_folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
            if not _is_ours(folder):
                raise PermissionError(None, "belongs to somebody else")
        except OSError as error:
            refused.append(f"{folder}: {error.strerror}")
            continue
        if refused:
            log.warning("kernels are kept in %s (%s)", folder, "; ".join(refused))
        return folder
    raise KernelUnavailable(
        f"no folder to keep compiled kernels in ({'; '.join(refused)}): set MINIBATCH_CACHE to one you can write to"
    )


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # on Windows every file is owned by number 0


def _is_ours(folder: Path) -> bool:
    """Code is loaded from nowhere another user could have put it. What root installs is trusted."""
    return folder.stat().st_uid in (_user(), 0)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time. The system lets go of it when the holder ends, however it ends."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("waiting for another process that builds %s", path.stem)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # a file system without locks: two may build, the last to finish is kept
            log.info("%s: no lock (%s)", path, error.strerror)
        yield
