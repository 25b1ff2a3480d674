"""The command line, `python -m minibatch COMMAND`: see --help, and the --help of each command."""

import argparse
import os
import sys
from importlib import import_module
from types import ModuleType

from minibatch.cuda.errors import BuildError, KernelUnavailable
from minibatch.openmp import settle_waiting

settle_waiting(os.environ)  # before torch is imported

COMMANDS = ("compare", "systems", "sweep", "figures", "player", "bench", "grade", "models", "doctor")


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 well, 1 it ended badly, 2 it was asked the wrong way."""
    parser = argparse.ArgumentParser(
        prog="python -m minibatch", description="Continuous batching, small enough to read."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    try:
        modules = _modules(sys.argv[1:] if argv is None else argv)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("minibatch"):  # a mistake of ours
            raise
        print(f"error: {error.name} is missing; python -m minibatch doctor says what to do", file=sys.stderr)
        return 1
    for name, module in modules.items():
        summary = module.__doc__.strip().splitlines()[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=summary))
    arguments = parser.parse_args(argv)
    try:
        return modules[arguments.command].run(arguments)
    except (
        ValueError,
        OSError,
        KernelUnavailable,
        BuildError,
    ) as error:  # our own refusals: bad input, a bad file, ...
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _modules(argv: list[str]) -> dict[str, ModuleType]:
    """The modules of all commands; of `doctor` alone if it is asked, for it must run where packages are missing."""
    names = ("doctor",) if argv[:1] == ["doctor"] else COMMANDS
    return {name: import_module(f"minibatch.commands.{name}") for name in names}


if __name__ == "__main__":
    sys.exit(main())
