"""Writes the tokens of texts into a folder, which `genesis train` learns from.

    genesis data books/ more.jsonl --tokenizer Qwen/Qwen3-0.6B -o data/books

A file is a document, a line of a .jsonl file (its field "text") is one; of a folder the .txt, .md and .jsonl files are
read. The tokenizer is copied beside the tokens.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from genesis.cli import language

HELP = "write the tokens of texts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("texts", nargs="+", type=Path, help="files and folders of text")
    parser.add_argument("--tokenizer", "-t", required=True,
                        help="a model's folder or its name in Hugging Face's cache; 'bytes' for the bytes of UTF-8")
    parser.add_argument("--output", "-o", required=True, type=Path, help="the folder to write")
    parser.add_argument("--shard-tokens", type=int, default=100_000_000, help="tokens of a file (%(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Write the folder, print how much it holds."""
    return language.refused(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    from genesis.models.data import read_texts, write_tokens
    from genesis.models.data.shards import check_free, copy_tokenizer
    from genesis.models.text import Tokenizer, write_byte_tokenizer
    check_free(arguments.output)
    if arguments.tokenizer == "bytes":
        write_byte_tokenizer(arguments.output)
    else:
        copy_tokenizer(arguments.tokenizer, arguments.output)
    began = time.perf_counter()
    found = write_tokens(read_texts(arguments.texts), Tokenizer.from_pretrained(arguments.output), arguments.output,
                         arguments.shard_tokens)
    seconds = time.perf_counter() - began
    print(f"{found.tokens:,} tokens of {found.documents:,} documents in {len(found.shards)} files at {found.path} "
          f"({seconds:.1f} s, {found.tokens / seconds:,.0f} tokens/s)")
    return 0
