"""What is learnt of an example, and rows of several."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis.models import AutoModelForCausalLM
from genesis.models.data import Example, PackedExamples, read_examples
from genesis.models.text import Tokenizer
from tests.models.text.small import TEMPLATE, write_folder

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

LAST_THINKS = TEMPLATE.replace("{{ m['content'] }}", "{{ m['content'] if not loop.last else '(hm)' ~ m['content'] }}")
"""A template that writes the last answer otherwise than earlier ones, as those of reasoning models do."""


def said(*contents: str) -> dict[str, Any]:
    roles = ["user", "assistant"] * len(contents)
    return {"messages": [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]}


def shown(tmp_path: Path, *rows: dict[str, Any], template: str = TEMPLATE, **options: Any) -> list[tuple[str, str]]:
    """(text, what is learnt of it) of each example."""
    folder = write_folder(tmp_path / "model", template)
    tokenizer = Tokenizer.from_pretrained(folder)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_examples(tmp_path / "rows.jsonl", tokenizer, **options)
    return [(tokenizer.decode(e.ids, skip_special_tokens=False),
             tokenizer.decode([i for i, learnt in zip(e.ids, e.learnt, strict=True) if learnt], False)) for e in found]


def test_answers_are_learnt_with_their_end(tmp_path: Path) -> None:
    rows = {"text": "all"}, {"prompt": "1+1=", "completion": "2"}, said("hi", "ho", "and", "so")
    assert shown(tmp_path, *rows) == [
        ("all<|end|>", "all<|end|>"), ("1+1=2<|end|>", "2<|end|>"),
        ("<|user|>hi<|end|><|assistant|>ho<|end|><|user|>and<|end|><|assistant|>so<|end|>", "ho<|end|>so<|end|>")]


def test_tools_of_a_chat_are_told_to_the_template(tmp_path: Path) -> None:
    """Each chat has its own, or none; what the assistant calls is learnt."""
    template = "{% for t in tools or [] %}[{{ t['name'] }}]{% endfor %}" + TEMPLATE
    found = shown(tmp_path, {**said("a", "b"), "tools": [{"name": "add"}, {"name": "time"}]}, said("c", "d"),
                  {**said("e", "f"), "tools": None}, template=template)
    assert [text for text, _ in found] == [f"{tools}<|user|>{a}<|end|><|assistant|>{b}<|end|>" for tools, a, b in (
        ("[add][time]", "a", "b"), ("", "c", "d"), ("", "e", "f"))]
    assert [learnt for _, learnt in found] == ["b<|end|>", "d<|end|>", "f<|end|>"]
    with pytest.raises(ValueError, match="line 1: 'tools' is a list of objects"):
        shown(tmp_path / "bad", {**said("a", "b"), "tools": "add"}, template=template)


def test_all_may_be_learnt(tmp_path: Path) -> None:
    assert shown(tmp_path, {"prompt": "1+1=", "completion": "2"}, answers_only=False) == [("1+1=2<|end|>",) * 2]


def test_answers_that_are_written_otherwise_when_last(tmp_path: Path) -> None:
    """Each is an example of its own, as the model will be asked."""
    assert shown(tmp_path, said("a", "b", "c", "d"), template=LAST_THINKS.replace("not loop.last", (
        "not loop.last or m['role'] == 'user'"))) == [
        ("<|user|>a<|end|><|assistant|>(hm)b<|end|>", "(hm)b<|end|>"),
        ("<|user|>a<|end|><|assistant|>b<|end|><|user|>c<|end|><|assistant|>(hm)d<|end|>", "(hm)d<|end|>")]


@pytest.mark.parametrize(("row", "message"), [
    ({"txt": "x"}, "line 1: an example has 'messages', 'text', or 'prompt' and 'completion'.*'txt'"),
    ({"messages": "x"}, "is a list of objects"), ({"text": "\ud83d"}, "line 1: this has half a character"),
    (said("hi"), "no message of the role 'assistant'")])
def test_bad_examples_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shown(tmp_path, row)


def test_a_template_without_a_place_for_answers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not write an answer behind its question"):
        shown(tmp_path, said("a", "b"), template="{{ messages|length }}{% if add_generation_prompt %}>{% endif %}")


def test_rows_hold_each_example_once() -> None:
    rng = np.random.default_rng(0)
    examples = [Example(tuple(rng.integers(1, 99, n).tolist()), (True,) * n) for n in rng.integers(2, 30, 40).tolist()]
    rows = PackedExamples(examples, 24)
    assert rows.cut == sum(len(e.ids) > 24 for e in examples)
    found = []
    for sample in (rows[i] for i in range(len(rows))):
        for number in range(sample["documents"].max() + 1):
            ids = sample["input_ids"][sample["documents"] == number].tolist()
            found.append(tuple(ids)) if any(ids) else None
    assert sorted(found) == sorted(e.ids[:24] for e in examples)
    used = sum(min(len(e.ids), 24) for e in examples)
    assert used / (24 * len(rows)) > 0.9


def test_packed_examples_have_the_loss_of_single_ones(tmp_path: Path) -> None:
    """The mask and the positions keep them apart."""
    model = AutoModelForCausalLM.from_pretrained(write_folder(tmp_path))
    rng = np.random.default_rng(1)
    examples = [Example(tuple(rng.integers(0, 256, n).tolist()), (False,) * 2 + (True,) * (n - 2)) for n in (5, 8, 3)]
    row = {name: genesis.tensor(array[None]) for name, array in PackedExamples(examples, 20)[0].items()}
    targets = row.pop("targets")
    packed = F.cross_entropy(model(**row).logits[0], targets[0], reduction="sum").item()
    single = 0.0
    for example in examples:
        logits = model(genesis.tensor([example.ids])).logits[0, 1:-1]
        single += F.cross_entropy(logits, genesis.tensor(example.ids[2:]), reduction="sum").item()
    assert packed == pytest.approx(single, rel=1e-5)  # float32 sums in another order
