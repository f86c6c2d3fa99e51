"""A chat with the language model of a folder. An empty line or Ctrl-D ends it, /new begins another.

    genesis chat Qwen/Qwen3-0.6B
    genesis chat                     # the small model that `genesis demo` has trained, which continues what is written

A model that was not made for chats continues the text so far. One with a table of positions, or with fewer slots of a
cache, sees the end of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from genesis.cli import language
from genesis.cli.record import Settings

HELP = "chat with a language model"

DEMO = Path(Settings().out) / "model"
"""Where `genesis demo` puts its model."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    language.add_model(parser, default=str(DEMO))
    parser.add_argument("--system-prompt", help="what the model is told first")
    language.add_template_values(parser)
    language.add_sampling(parser, temperature=0.7)


def run(arguments: argparse.Namespace) -> int:
    """Read lines, print answers."""
    return language.refused(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    from genesis.models.generation import cache_for
    from genesis.models.text import stream_generate
    if arguments.folder == str(DEMO) and not DEMO.is_dir():
        raise FileNotFoundError(f"there is no model at {DEMO} yet: genesis demo trains one in a few minutes; or give "
                                "the folder of another")
    model, tokenizer = language.opened(arguments)
    begin: list[dict[str, Any]] = []
    if arguments.system_prompt:
        begin = [{"role": "system", "content": arguments.system_prompt}]
    messages, told, slots = list(begin), "", arguments.max_kv_size
    while (line := _ask()) not in (None, ""):
        if line == "/new":
            messages, told = list(begin), ""
            continue
        if tokenizer.chat_template is None:
            told += line
            ids = tokenizer.encode(told)
        else:
            messages.append({"role": "user", "content": line})
            ids = tokenizer.encode_chat(messages, **arguments.chat_template_config)
        ids = language.recent(model, ids, slots)
        answer, last = language.show(stream_generate(
            model, tokenizer, ids, cache=cache_for(model, 1, slots) if slots else None,
            **{**language.options(arguments), "max_new_tokens": language.room(
                model, ids, arguments.max_tokens, slots=slots)}))
        messages.append({"role": "assistant", "content": answer})
        told += answer
        if last is not None:
            print(language.speeds(last), file=sys.stderr)
    return 0


def _ask() -> str | None:
    """The user's next line; None at the end of the input."""
    try:
        return language.utf8(input("> " if sys.stdin.isatty() else "").strip())
    except EOFError:
        return None
