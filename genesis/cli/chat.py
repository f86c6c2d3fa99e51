"""A chat with the language model of a folder. An empty line or Ctrl-D ends it, /new begins another.

    genesis chat Qwen/Qwen3-0.6B
    genesis chat                     # the small model that `genesis demo` has trained, which continues what is written

A model that was not made for chats continues the text so far. One with a table of positions, or with fewer slots of a
cache, sees the end of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genesis.cli import language
from genesis.cli.record import Settings

if TYPE_CHECKING:
    from genesis.models.generation import KVCache
    from genesis.models.text import Fragment, Tokenizer

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
    if arguments.folder == str(DEMO) and not DEMO.is_dir():
        raise FileNotFoundError(f"there is no model at {DEMO} yet: genesis demo trains one in a few minutes; or give "
                                "the folder of another")
    model, tokenizer = language.opened(arguments)
    begin: list[dict[str, Any]] = []
    if arguments.system_prompt:
        begin = [{"role": "system", "content": arguments.system_prompt}]
    messages, told, slots = list(begin), "", arguments.max_kv_size
    talk = Talk(model, tokenizer)
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
        answer, last = language.show(talk.answered(ids, slots, **{
            **language.options(arguments),
            "max_new_tokens": language.room(model, ids, arguments.max_tokens, slots=slots)}))
        messages.append({"role": "assistant", "content": answer})
        told += answer
        if last is not None:
            print(language.speeds(last), file=sys.stderr)
    return 0


class Talk:
    """A model, and the keys and values of what it has read and said: only what is new is read.

    Attributes:
        tokens: those that `cache` holds.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer):
        self._model, self._tokenizer = model, tokenizer
        self.tokens: list[int] = []
        self.cache: KVCache | None = None

    def answered(self, ids: list[int], slots: int | None, max_new_tokens: int, **options: Any) -> Iterator[Fragment]:
        """The answer to a whole conversation, of which the cache may have the beginning."""
        from genesis.models.generation import cache_for
        from genesis.models.text import stream_generate
        cache = cache_for(self._model, 1, slots or len(ids) + max_new_tokens)
        if self.cache is not None and options["repetition_penalty"] == 1:  # a penalty counts what a call reads
            with suppress(ValueError):  # windows have left what lies before: all is read again
                cache.take(self.cache, self._alike(ids, self.cache.seen))
        rest = ids[cache.seen:]
        self.cache, self.tokens = cache, list(ids)
        for fragment in stream_generate(self._model, self._tokenizer, rest, max_new_tokens, cache=cache, **options):
            self.tokens.append(fragment.token)
            yield fragment

    def _alike(self, ids: list[int], seen: int) -> int:
        """How many of the tokens in the cache the conversation begins with; not all of it. 0 where angles go by the
        text's length: in the cache are those of a shorter one."""
        rotary = getattr(self._model.model, "rotary_emb", None)
        if rotary is not None and rotary.by_length:
            return 0
        alike = next((i for i, (a, b) in enumerate(zip(self.tokens[:seen], ids, strict=False)) if a != b), seen)
        return min(alike, len(ids) - 1)


def _ask() -> str | None:
    """The user's next line; None at the end of the input."""
    try:
        return language.utf8(input("> " if sys.stdin.isatty() else "").strip())
    except EOFError:
        return None
