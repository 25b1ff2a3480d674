"""What a child process may not do: use the network, start programs, write outside of its folder, eat the machine.

Python calls an audit hook before each of these, and a hook cannot be taken off again. It is deaf to native code.
"""

import ctypes
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

COMPILERS = ("g++", "clang++", *(f"clang++-{n}" for n in range(20, 13, -1)))  # as in minibatch/cuda/compilers.py
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
MOST_FILE_BYTES = 256 * 2**20
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET of Linux' sched.h

NETWORK = "the network"
PROGRAM = "starting a program"
OUTSIDE = "changing a file outside of its folder"
SIGNAL = "ending another process"
NOTEBOOK = "reading another notebook"


@dataclass
class Rules:
    """`folder` is the child's own. While `checking`, a check may use its compiler and keep what it builds in `cache`.
    `refused` is told what was refused."""

    folder: str
    cache: str
    refused: Callable[[str], None]
    checking: bool = False
    compilers: set[str] = field(default_factory=set)

    def __post_init__(self):
        self.folder, self.cache = os.path.realpath(self.folder), os.path.realpath(self.cache) if self.cache else ""
        found = (shutil.which(name) for name in (os.environ.get("CXX") or "g++", *COMPILERS))
        self.compilers = {os.path.realpath(path) for path in found if path}


def install(rules: Rules) -> None:
    """From here on, for good. What is refused raises PermissionError in the code that tried."""
    judges = _judges(rules)
    refused, error = rules.refused, PermissionError

    def hook(event: str, arguments: tuple) -> None:
        judge = judges.get(event)
        if judge is None:
            return
        what = judge(*arguments)
        if what:
            refused(what)
            raise error(f"not while grading: {what}")

    sys.addaudithook(hook)


def _judges(rules: Rules) -> dict[str, Callable[..., str]]:
    """Event to the function of its arguments that returns what is to be refused, or ""."""
    within, own = _within(rules), os.getpid()
    isinstance_, int_ = isinstance, int  # student code may put others in their place
    fsdecode, realpath = os.fsdecode, os.path.realpath

    def outside(path: object, folder: int = -1) -> str:
        return "" if within(path, folder) else f"{OUTSIDE} ({fsdecode(path)})"

    def opened(path: object, mode: str | None, flags: int) -> str:
        if isinstance_(path, int_) or path is None:
            return ""
        if flags & WRITES:
            return outside(path)
        return NOTEBOOK if fsdecode(path).endswith(".ipynb") and not within(path) else ""

    def one(path: object, *rest: object) -> str:
        """remove, mkdir, chmod, ...: the last argument is the folder that `path` is relative to, or -1."""
        if isinstance_(path, int_):
            return ""
        return outside(path, rest[-1] if rest and isinstance_(rest[-1], int_) else -1)

    def two(source: object, target: object, *folders: int) -> str:
        first, second = folders if folders else (-1, -1)
        return outside(source, first) or outside(target, second)

    def link(source: object, target: object, folder: int = -1) -> str:
        return outside(target, folder)

    def plain(path: object, *_: object) -> str:
        return "" if isinstance_(path, int_) else outside(path)

    def database(path: object, *_: object) -> str:
        return "" if path in (":memory:", b":memory:", "", b"") else outside(path)

    def program(executable: object, *_: object) -> str:
        name = fsdecode(executable) if executable else "?"
        allowed = rules.checking and realpath(name) in rules.compilers
        return "" if allowed else f"{PROGRAM} ({name})"

    judges = {"open": opened, "os.rename": two, "os.link": two, "os.symlink": link, "sqlite3.connect": database}
    judges |= dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.utime"), one)
    judges |= dict.fromkeys(("os.truncate", "os.setxattr", "os.removexattr", "os.chflags"), plain)
    events = ("connect", "bind", "getaddrinfo", "sendto", "sendmsg", "gethostbyname", "gethostbyaddr", "getnameinfo")
    judges |= {f"socket.{event}": lambda *_: NETWORK for event in events}
    judges["subprocess.Popen"] = program
    events = ("system", "fork", "forkpty", "exec", "posix_spawn", "spawn", "startfile", "startfile/2")
    judges |= {event: lambda *_: PROGRAM for event in (*(f"os.{event}" for event in events), "pty.spawn")}
    judges["os.kill"] = lambda pid, signal: "" if pid == own else SIGNAL
    judges["os.killpg"] = lambda group, signal: SIGNAL
    return judges


def _within(rules: Rules) -> Callable[..., bool]:
    """Is a path in the child's folder, or, while checking, in the cache of built kernels?"""
    realpath, normcase, fsdecode, join, readlink = (
        os.path.realpath,
        os.path.normcase,
        os.fsdecode,
        os.path.join,
        getattr(os, "readlink", None),
    )
    null, separator = normcase(os.devnull), os.sep
    folder = normcase(rules.folder)
    cache = normcase(rules.cache)

    def within(path: object, relative_to: int = -1) -> bool:
        name = fsdecode(path)
        if relative_to != -1 and name[:1] != separator:
            try:
                name = join(readlink(f"/proc/self/fd/{relative_to}"), name)
            except OSError:
                return False  # a system that does not say which folder this is
        name = normcase(name)
        if name == null:
            return True
        name = normcase(realpath(name))
        places = [folder, cache] if rules.checking and cache else [folder]
        for place in places:
            if name == place or name.startswith(place + separator):
                return True
        return False

    return within


def limit(memory: int) -> None:
    """Bounds that the system keeps, where it has them: MiB of memory (Linux), bytes of a file, no core file."""
    sys.dont_write_bytecode = True
    try:
        import resource
    except ImportError:  # Windows: the parent watches the memory
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (memory * 2**20, memory * 2**20))


def leave_the_network() -> bool:
    """On Linux, where it is allowed: into a namespace without a network, which holds for native code too."""
    if sys.platform != "linux":
        return False
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(NEW_NETWORK) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if unshare(NEW_USER | NEW_NETWORK):
        return False
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    for name, text in maps.items():  # be who one was
        Path("/proc/self", name).write_text(text)
    return True
