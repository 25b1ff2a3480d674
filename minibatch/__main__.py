"""The command line, `python -m minibatch COMMAND`: see --help, and the --help of each command."""

import argparse
import os
import sys

from minibatch.openmp import settle_waiting

settle_waiting(os.environ)  # before torch is imported

from minibatch.commands import bench, compare, doctor, figures, models, sweep, systems  # noqa: E402
from minibatch.cuda.errors import BuildError, KernelUnavailable  # noqa: E402

COMMANDS = {
    "compare": compare,
    "systems": systems,
    "sweep": sweep,
    "figures": figures,
    "bench": bench,
    "models": models,
    "doctor": doctor,
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 well, 1 it ended badly, 2 it was asked the wrong way."""
    parser = argparse.ArgumentParser(
        prog="python -m minibatch", description="Continuous batching, small enough to read."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, module in COMMANDS.items():
        summary = module.__doc__.strip().splitlines()[0]
        module.add_arguments(commands.add_parser(name, help=summary, description=summary))
    arguments = parser.parse_args(argv)
    try:
        return COMMANDS[arguments.command].run(arguments)
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


if __name__ == "__main__":
    sys.exit(main())
