"""`python -m minibatch.cuda doctor`: what is here and what is missing. `python -m minibatch.cuda run FILE.cuh ...`: try
kernels on a small scene; silent if they are right."""

import argparse
import sys
from pathlib import Path

from minibatch.cuda.attempt import try_kernel
from minibatch.cuda.doctor import doctor
from minibatch.cuda.errors import KernelUnavailable
from minibatch.cuda.library import SCALARS
from minibatch.cuda.scene import LENGTHS

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in SCALARS}


def run(file: Path, arguments: argparse.Namespace) -> int:
    """Try one file. Returns 0 if it is right, 1 if something was found."""
    attempt = try_kernel(
        file,
        DTYPES[arguments.dtype],
        arguments.heads,
        arguments.kv_heads,
        arguments.head_dim,
        arguments.block_size,
        arguments.lengths,
        arguments.parts,
        "fast" if arguments.fast else "checked",
        arguments.backwards,
    )
    if not attempt.ok:
        print(f"{file}\n{attempt}" if len(arguments.files) > 1 else attempt)
        return 1
    if arguments.table:
        print(attempt.table())
    return 0


def main(argv: list[str] | None = None) -> int:
    """Returns the exit code: 0 well, 1 something is wrong with a kernel or a backend, 2 it could not be tried."""
    parser = argparse.ArgumentParser(prog="python -m minibatch.cuda", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("doctor", help="what is here and what is missing")
    _run_arguments(commands.add_parser("run", help="try kernels on a small scene; silent if they are right"))
    arguments = parser.parse_args(argv)
    try:
        return max(run(file, arguments) for file in arguments.files) if arguments.command == "run" else doctor()
    except (ValueError, OSError, KernelUnavailable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a rung of the ladder, changed as you like")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--checked", action="store_true", help="check every access (this is the default)")
    how.add_argument("--fast", action="store_true", help="check the numbers alone; a wrong address may crash")
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--heads", type=int, default=8, help="query heads (default 8)")
    parser.add_argument("--kv-heads", type=int, default=2, help="heads of K and V (default 2)")
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--block-size", type=int, default=16, help="positions of a K/V block (default 16)")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=LENGTHS, metavar="N", help="contexts of the sequences"
    )
    parser.add_argument("--parts", type=int, default=2, help="of a context, in rung 6 (default 2)")
    parser.add_argument("--backwards", action="store_true", help="threads and blocks take turns in opposite order")
    parser.add_argument("--table", action="store_true", help="what each line asked of memory")


if __name__ == "__main__":
    sys.exit(main())
