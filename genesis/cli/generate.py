"""Continues a prompt with the language model of a folder.

    genesis generate Qwen/Qwen3-0.6B --prompt "A compiler is" --max-tokens 50
"""

from __future__ import annotations

import argparse
import sys

from genesis.cli import language

HELP = "continue a prompt with a language model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    language.add_model(parser)
    parser.add_argument("--prompt", "-p", required=True, help="the text; - for standard input")
    parser.add_argument("--system-prompt", help="what the model is told first, through its chat template")
    parser.add_argument("--ignore-chat-template", action="store_true", help="continue the text as it is")
    parser.add_argument("--verbose", action=argparse.BooleanOptionalAction, default=True, help="print speeds")
    language.add_sampling(parser, temperature=0.0)


def run(arguments: argparse.Namespace) -> int:
    """Print the answer."""
    return language.refused(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    from genesis.models.generation import cache_for
    from genesis.models.text import stream_generate
    prompt = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    model, tokenizer = language.opened(arguments)
    if tokenizer.chat_template is None or arguments.ignore_chat_template:
        ids = tokenizer.encode(prompt)
    else:
        system = [{"role": "system", "content": arguments.system_prompt}] if arguments.system_prompt else []
        ids = tokenizer.encode_chat([*system, {"role": "user", "content": prompt}])
    cache = cache_for(model, 1, arguments.max_kv_size) if arguments.max_kv_size else None
    _, last = language.show(stream_generate(model, tokenizer, ids, cache=cache, **{
        **language.options(arguments), "max_new_tokens": language.room(model, ids, arguments.max_tokens)}))
    if arguments.verbose and last is not None:
        print(language.speeds(last), file=sys.stderr)
    return 0
