"""What only Unix has is asked for only where it is used: the rest runs where Python has none of it, as on Windows."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "minibatch"
UNIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
# Other packages look at the system when they are imported, so they come first; then what Windows lacks is taken away.
WITHOUT_UNIX = """
import asyncio, concurrent.futures, multiprocessing, subprocess, tempfile
import gguf, IPython, matplotlib, platformdirs, psutil, safetensors, tokenizers, torch, tqdm
import os, signal, sys
for name in {modules}:
    sys.modules[name] = None
for name in ("getuid", "geteuid", "getgid", "getloadavg", "sched_getaffinity", "killpg", "getpgid", "fork", "chown"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGALRM", "SIGHUP", "setitimer"):
    if hasattr(signal, name):
        delattr(signal, name)
from minibatch.__main__ import main
print(main({argv}))
"""


def without_unix(*argv: str) -> subprocess.CompletedProcess:
    code = WITHOUT_UNIX.format(modules=UNIX_MODULES, argv=list(argv))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def test_the_main_job_runs_without_unix():
    done = without_unix("compare", "--model", "tiny", "--schedulers", "iteration", "--json")
    assert done.returncode == 0, done.stderr
    report, _, code = done.stdout.rpartition("}")
    assert code.strip() == "0" and json.loads(report + "}")["runs"][0]["n"] == 24


def test_the_doctor_runs_without_unix_and_has_nothing_to_report():
    done = without_unix("doctor")
    assert done.returncode == 0, done.stderr
    assert "please report this" not in done.stdout and done.stdout.rstrip().endswith("0")


def test_no_module_imports_what_only_unix_has():
    """But for those in a `try`; an import inside a function is the function's own affair."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.name}: {name}" for name in names if name in UNIX_MODULES]
    assert not found
