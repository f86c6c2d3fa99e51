"""Examples to fine-tune on: texts, prompts with completions, chats; and which of their tokens are learnt."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from genesis.models.data.texts import read_rows

if TYPE_CHECKING:
    from genesis.models.text import Tokenizer

CHATS_AT_ONCE: Final = 64
"""Chats that one process renders: its start takes longer than most chats."""

Row = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Example:
    """One text.

    Attributes:
        ids: its tokens.
        learnt: for each token, whether it is to be predicted.
    """

    ids: tuple[int, ...]
    learnt: tuple[bool, ...]


def read_examples(path: str | os.PathLike[str], tokenizer: Tokenizer, answers_only: bool = True) -> list[Example]:
    """The examples of a .jsonl file, whose lines hold one of

        {"text": "…"}                           all of it is learnt
        {"prompt": "…", "completion": "…"}      the completion is learnt
        {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}, …]}
                                                what the assistant says is learnt, through the model's chat template;
                                                the template is told "tools", a list of objects, if the line has some

    Args:
        path: the file.
        tokenizer: of the model.
        answers_only: False learns prompts and questions too.

    Raises:
        ValueError: a line holds something else, a chat has no answer, or its template writes an answer otherwise than
            as a continuation of the question.
    """
    rows = list(read_rows(Path(path)))
    if not rows:
        raise ValueError(f"{path} has no examples")
    found: list[Example] = []
    remaining = iter(rows)
    while several := list(islice(remaining, CHATS_AT_ONCE)):
        chats = _chats([row for row in several if "messages" in row[1]], tokenizer)
        for where, row in several:
            if "messages" in row:
                found += next(chats)
            else:
                found.append(_plain(where, row, tokenizer))
    if not answers_only:
        found = [Example(example.ids, (True,) * len(example.ids)) for example in found]
    return found


def _plain(where: str, row: Mapping[str, Any], tokenizer: Tokenizer) -> Example:
    if isinstance(row.get("text"), str):
        return _joined([(tokenizer.encode(row["text"]), True), (_end(tokenizer), True)])
    if isinstance(row.get("prompt"), str) and isinstance(row.get("completion"), str):
        return _joined([(tokenizer.encode(row["prompt"]), False),
                        (tokenizer.encode(row["completion"], add_special_tokens=False), True), (_end(tokenizer), True)])
    raise ValueError(f"{where}: an example has 'messages', 'text', or 'prompt' and 'completion', which are texts; "
                     f"this has {', '.join(map(repr, row)) or 'nothing'}")


def _end(tokenizer: Tokenizer) -> list[int]:
    return [] if tokenizer.end_id is None else [tokenizer.end_id]


def _joined(parts: Sequence[tuple[Sequence[int], bool]]) -> Example:
    return Example(tuple(token for ids, _ in parts for token in ids),
                   tuple(learnt for ids, learnt in parts for _ in ids))


def _chats(rows: Sequence[Row], tokenizer: Tokenizer) -> Iterator[list[Example]]:
    """The examples of each chat. All that the template is asked for is asked at once."""
    talks = [(where, _messages(where, row["messages"])) for where, row in rows]
    turns = [[i for i, message in enumerate(messages) if message["role"] == "assistant"] for _, messages in talks]
    asked = [messages[:i] for (_, messages), places in zip(talks, turns, strict=True) for i in places]
    answered = [messages[:i + 1] for (_, messages), places in zip(talks, turns, strict=True) for i in places]
    if not asked:
        return
    told = [_tools(where, row) for (where, row), places in zip(rows, turns, strict=True) for _ in places]
    questions = iter(tokenizer.chats(asked, own=told))
    answers = iter(tokenizer.chats(answered, add_generation_prompt=False, own=told))
    for (where, _), places in zip(talks, turns, strict=True):
        spans = []
        for _ in places:
            question, whole = next(questions), next(answers)
            if not whole.startswith(question):
                raise ValueError(f"{where}: the chat template does not write an answer behind its question, so what "
                                 f"is to be learnt cannot be told; it writes {question[-60:]!r} and {whole[-60:]!r}")
            spans.append((question, whole))
        yield [_learnt(group, tokenizer) for group in _continued(spans)]


def _messages(where: str, given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, list) or not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in given):
        raise ValueError(f"{where}: 'messages' is a list of objects with a 'role' and a 'content'")
    if not any(message["role"] == "assistant" for message in given):
        raise ValueError(f"{where}: the chat has no message of the role 'assistant', so there is nothing to learn")
    return given


def _tools(where: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What a chat's template is told of the tools that the assistant may call; nothing where there are none."""
    tools = row.get("tools")
    if tools is None:
        return {}
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError(f"{where}: 'tools' is a list of objects")
    return {"tools": tools}


def _continued(spans: Sequence[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Answers of one chat, together as long as each one's text begins with the text up to the answer before it.

    A template may write an earlier answer otherwise than the last (without its reasoning): then each is an example.
    """
    groups: list[list[tuple[str, str]]] = []
    for question, whole in spans:
        if groups and question.startswith(groups[-1][-1][1]):
            groups[-1].append((question, whole))
        else:
            groups.append([(question, whole)])
    return groups


def _learnt(group: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> Example:
    """The pieces become tokens apart, as they do when the model answers."""
    parts, done = [], 0
    for question, whole in group:
        parts += [(question[done:], False), (whole[len(question):], True)]
        done = len(whole)
    return _joined([(tokenizer.encode(text, add_special_tokens=False), learnt) for text, learnt in parts])
