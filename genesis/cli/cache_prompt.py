"""Reads a long prompt once and keeps what the model made of it in a file, which `genesis generate` goes on from.

    genesis cache_prompt Qwen/Qwen3-0.6B --prompt - --prompt-cache-file book.cache < book.txt
    genesis generate Qwen/Qwen3-0.6B --prompt-cache-file book.cache --prompt "Who wrote it?"

Through a chat template the user's message begins with it and stays open: what `generate` is given is its end.
"""

from __future__ import annotations

import argparse
import sys
import time

from genesis.cli import language

HELP = "read a prompt once, for genesis generate --prompt-cache-file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    language.add_model(parser)
    language.add_prompt(parser)
    parser.add_argument("--prompt-cache-file", metavar="FILE", required=True, help="where to keep it")
    language.add_slots(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the file."""
    return language.refused(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    import genesis
    from genesis.models.folder import find_folder, fingerprint
    from genesis.models.generation import cache_for
    from genesis.models.generation.decoding import Decoder
    from genesis.models.generation.sampling import Sampling
    prompt = language.prompt_of(arguments)
    model, tokenizer = language.opened(arguments)
    chat = language.chat_of(arguments, tokenizer, prompt)
    text = tokenizer.chat(chat, continue_final_message=True, **arguments.chat_template_config) if chat else prompt
    ids = tokenizer.encode(text, add_special_tokens=not chat)
    if not ids:
        raise ValueError("the prompt is empty")
    language.room(model, ids, 1, slots=arguments.max_kv_size)
    cache = cache_for(model, 1, arguments.max_kv_size or len(ids))
    start = time.perf_counter()
    with genesis.no_grad():
        decoder = Decoder(model.eval(), 1, 0, Sampling(temperature=0), cache=cache)
        decoder.prefill(genesis.tensor([ids], device=decoder.device)).tokens.item()
    seconds = time.perf_counter() - start
    cache.save(arguments.prompt_cache_file, model=fingerprint(find_folder(arguments.folder)), folder=arguments.folder,
               chat=int(bool(chat)))
    print(f"prompt {len(ids)} tokens, {len(ids) / seconds:,.1f} tokens/s; {cache.nbytes / 1e6:,.1f} MB in "
          f"{arguments.prompt_cache_file}", file=sys.stderr)
    return 0
