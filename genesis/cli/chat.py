"""A chat with the language model of a folder. An empty line or Ctrl-D ends it, /new begins another.

    genesis chat Qwen/Qwen3-0.6B
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from genesis.cli import language

HELP = "chat with a language model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    language.add_model(parser)
    parser.add_argument("--system-prompt", help="what the model is told first")
    language.add_sampling(parser, temperature=0.7)


def run(arguments: argparse.Namespace) -> int:
    """Read lines, print answers."""
    return language.refused(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    from genesis.models.text import stream_generate
    model, tokenizer = language.opened(arguments)
    begin: list[dict[str, Any]] = []
    if arguments.system_prompt:
        begin = [{"role": "system", "content": arguments.system_prompt}]
    messages, told = list(begin), ""
    while (line := _ask()) not in (None, ""):
        if line == "/new":
            messages, told = list(begin), ""
            continue
        if tokenizer.chat_template is None:
            told += line
            ids = tokenizer.encode(told)
        else:
            messages.append({"role": "user", "content": line})
            ids = tokenizer.encode_chat(messages)
        answer, last = language.show(stream_generate(model, tokenizer, ids, **language.options(arguments)))
        messages.append({"role": "assistant", "content": answer})
        told += answer
        if last is not None:
            print(language.speeds(last), file=sys.stderr)
    return 0


def _ask() -> str | None:
    """The user's next line; None at the end of the input."""
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None
