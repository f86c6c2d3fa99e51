"""A tokenizer without a vocabulary of its own: each byte of a text's UTF-8 is a token, its number the byte's value."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from genesis.models.folder import write_json
from genesis.models.text.tokenizer import Tokenizer

END: Final = "<|end|>"
"""The token that ends a text, number 256."""

PLAIN: Final = frozenset([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)])
"""Bytes that GPT-2's way of writing bytes as characters writes as the character of that number."""


def byte_tokenizer(end: bool = True) -> Tokenizer:
    """The tokenizer of bytes. Needs the extra `llm`.

    >>> tokens = byte_tokenizer()
    >>> tokens.encode("äb"), tokens.decode([195, 164, 98]), tokens.vocab_size, tokens.end_id
    ([195, 164, 98], 'äb', 257, 256)
    """
    from tokenizers import Tokenizer as Tokens
    return Tokenizer(Tokens.from_str(json.dumps(_tokens(end))), {"eos_token": END} if end else {},
                     [256] if end else [], None)


def write_byte_tokenizer(folder: str | os.PathLike[str], end: bool = True, chat_template: str | None = None) -> None:
    """Write the tokenizer of bytes into a folder, where `Tokenizer.from_pretrained` and transformers read it.

    Args:
        folder: is made if there is none.
        end: with the token `END`, number 256; else there are 256 tokens.
        chat_template: how chats are written.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "tokenizer.json", _tokens(end))
    write_json(path / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", **({"eos_token": END} if end else {}),
        **({"chat_template": chat_template} if chat_template else {})})


def _tokens(end: bool) -> dict[str, Any]:
    """What `tokenizer.json` says: pairs that merge, of which there are none, over the characters of bytes."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"id": 256, "content": END, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True}
    others = iter(range(256, 512))
    letters = {chr(byte if byte in PLAIN else next(others)): byte for byte in range(256)}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special] if end else [],
            "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": letters, "merges": []}}
