"""Continues a prompt with the language model of a folder.

    genesis generate Qwen/Qwen3-0.6B --prompt "A compiler is" --max-tokens 50
    genesis generate Qwen/Qwen3-0.6B --prompt-cache-file book.cache --prompt "Who wrote it?"
    genesis generate Qwen/Qwen3-0.6B --prompt "Name a river" --prefill-response "The river"
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from genesis.cli import language

if TYPE_CHECKING:
    from genesis.models.text import Tokenizer

HELP = "continue a prompt with a language model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    language.add_model(parser)
    language.add_prompt(parser)
    parser.add_argument("--prefill-response", metavar="TEXT", help="how the answer begins, which the model continues")
    parser.add_argument("--prompt-cache-file", metavar="FILE",
                        help="what genesis cache_prompt has read already; the prompt goes on behind it")
    parser.add_argument("--verbose", type=language.truth, nargs="?", const=True, default=True, metavar="T|F",
                        help="print speeds (T)")
    parser.add_argument("--no-verbose", dest="verbose", action="store_false", help="the same as --verbose F")
    language.add_sampling(parser, temperature=0.0)


def run(arguments: argparse.Namespace) -> int:
    """Print the answer."""
    return language.refused(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    from genesis.models.text import stream_generate
    prompt = language.prompt_of(arguments)
    if arguments.prompt_cache_file is not None and arguments.system_prompt:
        raise ValueError("--system-prompt comes before what --prompt-cache-file holds: give it to genesis cache_prompt")
    model, tokenizer, ids = language.opened_while(arguments, lambda tokenizer: _tokens(arguments, tokenizer, prompt))
    cache = _cache(arguments, model, tokenizer, len(ids))
    wanted = language.room(model, ids, arguments.max_tokens, 0 if cache is None else cache.seen, arguments.max_kv_size)
    if arguments.prefill_response:
        print(arguments.prefill_response, end="", flush=True)
    _, last = language.show(stream_generate(model, tokenizer, ids, cache=cache, **{
        **language.options(arguments), "max_new_tokens": wanted}))
    if arguments.verbose and last is not None:
        print(language.speeds(last), file=sys.stderr)
    return 0


def _tokens(arguments: argparse.Namespace, tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The tokens to read: the prompt in its chat, up to the answer or into it; behind a cache from the prompt on."""
    begun, cached = arguments.prefill_response or "", arguments.prompt_cache_file is not None
    chat = language.chat_of(arguments, tokenizer, language.PLACE if cached else prompt)
    if not chat:
        return tokenizer.encode(prompt + begun, add_special_tokens=not cached)
    answer = [{"role": "assistant", "content": begun}] if begun else []
    text = tokenizer.chat([*chat, *answer], continue_final_message=bool(begun), **arguments.chat_template_config)
    if cached:
        text = prompt + text[text.rindex(language.PLACE) + len(language.PLACE):]
    return tokenizer.encode(text, add_special_tokens=False)


def _cache(arguments: argparse.Namespace, model: Any, tokenizer: Tokenizer, prompt: int) -> Any:
    """The cache of a size that was asked for, or with what a file holds; None for a new one.

    Raises:
        ValueError: the file holds no cache, one of another model, or a prompt that was put to it in another way.
    """
    from genesis.models.generation import cache_for
    from genesis.models.generation.stored_cache import read_cache
    path = arguments.prompt_cache_file
    if path is None:
        return cache_for(model, 1, arguments.max_kv_size) if arguments.max_kv_size else None
    stored = read_cache(path, "cpu", mmap=True)
    _check_same(arguments, stored.metadata, bool(language.chat_of(arguments, tokenizer, "")))
    cache = cache_for(model, 1, arguments.max_kv_size or stored.seen + prompt + arguments.max_tokens)
    cache.load_into(path)
    return cache


def _check_same(arguments: argparse.Namespace, told: Mapping[str, Any], chat: bool) -> None:
    """Raise ValueError unless `genesis cache_prompt` wrote a cache of this model's, and of a chat if this is one."""
    from genesis.models.folder import find_folder, fingerprint
    path = arguments.prompt_cache_file
    if told.get("model") != fingerprint(find_folder(arguments.folder)):
        raise ValueError(f"{path} was written for another model, {told.get('folder', 'which it does not name')}")
    if bool(told.get("chat")) != chat:
        raise ValueError(f"{path} holds " + (
            "a chat that has begun: leave --ignore-chat-template out" if told.get("chat") else
            "a text that was read without the chat template: give --ignore-chat-template here, too"))
