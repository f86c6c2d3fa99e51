"""Tokens of a text and back, and chats as the model was trained to read them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from genesis.models.folder import find_folder, read_json

TIMEOUT: Final = 20.0
"""Seconds that rendering a chat may take, the start of its process included."""


MARK: Final = "Here-It-Goes-On-7c1e "
"""Stands behind a message that goes on: where it is in what a template writes, the message ends. The space at its end
is missing there if the template strips messages."""

REASONING: Final = ("reasoning_content", "thinking", "reasoning")
"""Names that files give to what an assistant thought; templates read one of the first two."""


class Tokenizer:
    """The tokenizer of a model's folder.

    Attributes:
        end_id: the token that ends a text, or None where there is none.
        stop_ids: tokens that end an answer, from `generation_config.json`, `config.json` and the tokenizer.
        chat_template: jinja2's text, or None where the model was not made for chats.
    """

    def __init__(self, tokens: Any, special: Mapping[str, str], stop_ids: Sequence[int], chat_template: str | None):
        self._tokens, self.special, self.stop_ids = tokens, dict(special), tuple(stop_ids)
        own = tokens.token_to_id(self.special["eos_token"]) if "eos_token" in self.special else None
        self.end_id: int | None = own if own is not None else next(iter(self.stop_ids), None)
        self.chat_template = chat_template

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], revision: str = "main") -> Tokenizer:
        """The tokenizer in a folder, or in Hugging Face's cache under a name.

        Raises:
            ImportError: the extra `llm` is not installed.
            FileNotFoundError: there is no `tokenizer.json`.
            ValueError: a file is damaged.
        """
        path = find_folder(folder, revision)
        try:
            from tokenizers import Tokenizer as Tokens
        except ImportError:
            raise ImportError("tokenizers is not installed: pip install 'genesis-compiler[llm]'") from None
        if not (path / "tokenizer.json").is_file():
            raise FileNotFoundError(f"{path} has no tokenizer.json")
        try:
            tokens = Tokens.from_file(str(path / "tokenizer.json"))
        except Exception as error:  # the library raises bare Exceptions
            raise ValueError(f"{path / 'tokenizer.json'} is damaged ({error})") from None
        tokens.no_truncation()
        tokens.no_padding()
        settings = _optional(path / "tokenizer_config.json")
        special = {name: text for name in ("bos_token", "eos_token", "pad_token", "unk_token")
                   if (text := _text(settings.get(name))) is not None}
        stops: list[int] = []
        for source in (_optional(path / "generation_config.json"), _optional(path / "config.json")):
            stops += _ids(source.get("eos_token_id"))
        if "eos_token" in special and (eos := tokens.token_to_id(special["eos_token"])) is not None:
            stops.append(eos)
        return cls(tokens, special, list(dict.fromkeys(stops)), _template(path, settings))

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, those that were added included."""
        return int(self._tokens.get_vocab_size())

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text; with those that the model expects around it."""
        return list(self._tokens.encode(text, add_special_tokens=add_special_tokens).ids)

    def encode_many(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[list[int]]:
        """The tokens of several texts."""
        found = self._tokens.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return [list(encoding.ids) for encoding in found]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of tokens."""
        return str(self._tokens.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def chat(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True,
             continue_final_message: bool = False, **values: Any) -> str:
        """A chat as the model's template writes it.

        Args:
            messages: {"role": "user", "content": "…"} each.
            add_generation_prompt: end with the beginning of an answer.
            continue_final_message: end where the last message does, which goes on: without what closes it.
            values: what else the template asks for, such as `tools` or `enable_thinking`.

        Raises:
            ValueError: there is no template, or it refuses the chat, or takes more than it may; or the text of the last
                message, which is to go on, is not in what the template writes.
        """
        if not continue_final_message:
            return self.chats([messages], add_generation_prompt, **values)[0]
        last = messages[-1].get("content") if messages else None
        if not isinstance(last, str):
            raise ValueError("the chat has no last message of text that could go on")
        text = self.chats([[*messages[:-1], {**messages[-1], "content": last + MARK}]], False, **values)[0]
        at = text.rfind(MARK.strip())
        if at < 0 or last.strip() not in text[:at]:
            raise ValueError("the chat template does not write the last message as it is, so that it cannot go on")
        return text[:at] if text.startswith(MARK, at) else text[:at].rstrip()  # else the template strips what it writes

    def chats(self, several: Sequence[Sequence[Mapping[str, Any]]], add_generation_prompt: bool = True,
              own: Sequence[Mapping[str, Any]] | None = None, **values: Any) -> list[str]:
        """Several chats, written as `chat` writes one, in one process.

        Args:
            several, add_generation_prompt, values: see `chat`.
            own: for each chat what else the template asks for, such as its `tools`.
        """
        if self.chat_template is None:
            raise ValueError("this model has no chat template: give it a text to continue")
        return render_chats(self.chat_template, [
            {**self.special, "messages": [_with_reasoning(message) for message in messages], "tools": None,
             "documents": None, "add_generation_prompt": add_generation_prompt, **values, **told}
            for messages, told in zip(several, [{}] * len(several) if own is None else own, strict=True)])

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **values: Any) -> list[int]:
        """The tokens of a chat; the template writes the special ones."""
        return self.encode(self.chat(messages, **values), add_special_tokens=False)


def render_chat(template: str, values: Mapping[str, Any]) -> str:
    """Render a template for one chat."""
    return render_chats(template, [values])[0]


CHATS_AT_ONCE: Final = 256
"""Chats that one process renders, so that what they take together stays below its limits."""


def render_chats(template: str, several: Sequence[Mapping[str, Any]]) -> list[str]:
    """Render a template for each of several chats in processes of their own, with limits on time, memory and text
    (`render.py`)."""
    return [text for start in range(0, len(several), CHATS_AT_ONCE)
            for text in _rendered(template, several[start:start + CHATS_AT_ONCE])]


def _rendered(template: str, several: Sequence[Mapping[str, Any]]) -> list[str]:
    request = json.dumps({"template": template, "several": [dict(values) for values in several]}).encode()
    program = Path(__file__).with_name("render.py")
    try:
        done = subprocess.run([sys.executable, "-P", str(program)], input=request, capture_output=True, timeout=TIMEOUT,
                              check=False, start_new_session=True)
    except subprocess.TimeoutExpired:
        raise ValueError(f"the chat template takes more than {TIMEOUT:g} seconds") from None
    if done.returncode or not done.stdout:
        raise ValueError(f"the chat template takes more time or memory than it may (status {done.returncode})")
    answer = json.loads(done.stdout)
    if "missing" in answer:
        raise ImportError(f"{answer['missing']}: pip install 'genesis-compiler[llm]'")
    if "error" in answer:
        raise ValueError(f"the chat template cannot write this chat: {answer['error']}")
    return [str(text) for text in answer["texts"]]


def _with_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message with what the assistant thought by the names that templates read, as transformers gives it to them."""
    thought = next((message[name] for name in REASONING if message.get(name) is not None), None)
    return dict(message) if thought is None else {"thinking": thought, **message, "reasoning_content": thought}


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _text(token: Any) -> str | None:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _ids(given: Any) -> list[int]:
    if isinstance(given, int):
        return [given]
    return [i for i in given if isinstance(i, int)] if isinstance(given, list) else []


def _template(path: Path, settings: Mapping[str, Any]) -> str | None:
    """The template, from a file of its own or from the tokenizer's settings; of several, the default."""
    own = path / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    found = settings.get("chat_template")
    if isinstance(found, list):
        named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
        found = named.get("default")
    return found if isinstance(found, str) else None
