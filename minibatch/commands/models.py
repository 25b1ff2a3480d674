"""Which models there are, and fetch one."""

import argparse

from minibatch.model import KNOWN, smollm2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `models`."""
    parser.add_argument("--fetch", choices=["smollm2"], help="fetch it into the cache, unless it is there already")


def run(arguments: argparse.Namespace) -> int:
    """List them, or fetch."""
    if arguments.fetch:
        print(f"{arguments.fetch}: {smollm2.fetch()}")
        return 0
    for name, what in KNOWN.items():
        here = name != "smollm2" or smollm2.gguf_path().exists()
        print(f"{name:8} {'here' if here else 'not fetched yet':16} {what}")
    print(f"PATH     {'':16} a folder with config.json, *.safetensors and tokenizer.json of a Llama model")
    print(f"\nfetched models are kept in {smollm2.cache_folder()} (set MINIBATCH_CACHE to keep them elsewhere)")
    return 0
