"""The `genesis` command: finds the subcommand and runs it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from importlib import import_module

from genesis.runtime.collectives import rank_of_job

# A subcommand is a module here with `HELP`, `add_arguments(parser)` and `run(arguments) -> exit status`.
COMMANDS = ("cache", "cache_prompt", "chat", "data", "demo", "dump", "eval", "finetune", "generate", "launch", "ops",
            "passes", "profile", "train", "tune", "why")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `genesis argv...`; returns the exit status.

    What follows a `--` is not ours: it goes, as `arguments.rest`, to a command that has a default for that. In a job of
    several ranks the first one alone writes to stdout.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = make_parser()
    if not words:
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(words[:cut])
    if hasattr(arguments, "rest"):
        arguments.rest = words[cut + 1:]
    elif cut < len(words):
        parser.error("this command takes nothing after --")
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere) if rank_of_job() else nullcontext():
            return arguments.run(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away (genesis dump ... | head)
        sys.stderr.close()
        return 141


def make_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="genesis", description="A lazy tensor compiler that looks like PyTorch.")
    commands = parser.add_subparsers(metavar="command", required=True)
    for name in COMMANDS:
        module = import_module(f"genesis.cli.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
