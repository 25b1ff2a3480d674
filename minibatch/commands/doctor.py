"""What this machine has for the course, one tiny run, and for each thing that is wrong what to do.

Imports nothing that could be missing: it is here to say so.
"""

import argparse
import json

from minibatch.commands import doctor_install as install
from minibatch.commands import doctor_machine as machine
from minibatch.commands.doctor_finding import PROBLEM, REMARK, Check, Finding, findings

CHECKS: list[tuple[str, Check]] = [
    ("python", install.python),
    ("minibatch", install.package),
    ("packages", install.packages),
    ("widgets", install.widgets),
    ("kernel", install.kernel),
    ("fonts", install.fonts),
    ("memory", machine.memory),
    ("threads", machine.processors),
    ("folders", machine.folders),
    ("compilers", machine.compilers),
    ("models", machine.models),
]
WIDE = 18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print the findings, what is wrong last; 1 if the course cannot run here."""
    found: list[Finding] = []
    for one in findings(CHECKS):
        found.append(one)
        if not arguments.json:
            print(f"{one.what:{WIDE}} {one.state}", flush=True)
    ok = all(one.level != PROBLEM for one in found)
    if arguments.json:
        print(json.dumps({"ok": ok, "findings": [one._asdict() for one in found]}, indent=1))
    else:
        _conclude(found, ok)
    return 0 if ok else 1


def _conclude(found: list[Finding], ok: bool) -> None:
    """What is wrong, by what to do about it; then OK or not."""
    for level in (REMARK, PROBLEM):
        ill = [one for one in found if one.level == level]
        for cure in dict.fromkeys(one.cure for one in ill):
            states = [f"{one.what}: {one.state}" for one in ill if one.cure == cure]
            print(f"\n{level.upper()}: " + "\n  and ".join(states) + f"\n  -> {cure}")
    remarks = sum(one.level == REMARK for one in found)
    print()
    if not ok:
        print("not OK")
    elif remarks:
        print(f"The course runs here; {'a part' if remarks == 1 else 'parts'} of it may not, see above. OK")
    else:
        print("OK")
