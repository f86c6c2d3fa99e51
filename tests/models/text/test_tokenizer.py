"""Tokens, chats, and templates of strangers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genesis.models.text import Tokenizer
from genesis.models.text.tokenizer import render_chat, render_chats
from tests.models.text.small import TEMPLATE, write_folder

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"))


def test_text_to_tokens_and_back(folder: Path) -> None:
    tokenizer = Tokenizer.from_pretrained(folder)
    text = "A compiler, mit Ärger: 编译器 🙂\n  indented"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == 257


def test_what_ends_an_answer(folder: Path, tmp_path: Path) -> None:
    assert Tokenizer.from_pretrained(folder).stop_ids == (256,)
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    assert Tokenizer.from_pretrained(tmp_path).stop_ids == (7, 8, 256)


def test_a_chat_is_what_transformers_writes(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|end|>")
    theirs.chat_template = TEMPLATE
    wanted = theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert wanted == "<|user|>hi<|end|><|assistant|>yes?<|end|><|assistant|>"
    assert Tokenizer.from_pretrained(folder).chat(CHAT) == wanted


@pytest.mark.parametrize("said", ["e", "The end", " The river ", "n", "<|end|>", "two\nlines\n"])
@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE.replace("m['content']", "m['content'] | trim")],
                         ids=["as it is", "trimmed"])
def test_a_message_goes_on_where_it_does_in_transformers(folder: Path, template: str, said: str) -> None:
    """Though what closes it has the same letters."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|end|>")
    theirs.chat_template = template
    ours, chat = Tokenizer.from_pretrained(folder), [*CHAT[:-1], {"role": "assistant", "content": said}]
    ours.chat_template = template
    wanted = theirs.apply_chat_template(chat, tokenize=False, continue_final_message=True)
    assert ours.chat(chat, continue_final_message=True) == wanted


@pytest.mark.parametrize("template", [
    "{{ messages | tojson(indent=2) }}", "{{ messages | tojson(separators=(',', ':'), sort_keys=true) }}",
    "{{ messages | tojson(ensure_ascii=true) }}", "{{ messages | tojson(true, 1) }}",
    "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.content }};{% endfor %}",
    "{% set d = dict(a=1) %}{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = n.x + 1 %}{% endfor %}"
    "{{ d.a }}{{ n.x }}{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"])
def test_what_a_template_may_use_is_transformers(folder: Path, template: str) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    chat = [{"role": "user", "content": "ä\u2028 <b>"}, {"role": "assistant", "content": "c", "reasoning": "why"},
            {"role": "assistant", "content": "d", "thinking": "because"}]
    theirs.chat_template = template
    ours = Tokenizer.from_pretrained(folder)
    ours.chat_template = template
    assert ours.chat(chat) == theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)


def test_a_template_in_a_file_of_its_own(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, template=None)
    with pytest.raises(ValueError, match="no chat template"):
        Tokenizer.from_pretrained(folder).chat(CHAT)
    (folder / "chat_template.jinja").write_text("{{ messages|tojson }}{% generation %}ä{% endgeneration %}")
    assert Tokenizer.from_pretrained(folder).chat(CHAT) == json.dumps(CHAT, ensure_ascii=False) + "ä"


@pytest.mark.parametrize(("template", "message"), [
    ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
    ("{{ messages.__class__.__mro__ }}", "unsafe"),
    ("{{ ''.__class__.__base__.__subclasses__() }}", "unsafe"),
    ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "more time or memory"),
    ("{{ 'x' * 3000000000 }}", "memory|MB"),
    ("{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "longer than"),
    ("{% if %}", "TemplateSyntaxError"),
    ("{{ open('/etc/passwd').read() }}", "undefined"),
    ("{% include '/etc/passwd' %}", "TypeError|no loader"),
])
def test_a_template_that_should_not_be(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        render_chat(template, {"messages": CHAT})


def test_many_chats_of_many_messages() -> None:
    """A file of chats is rendered up to each answer: a template is compiled once for all, limits are for each."""
    branches = "".join(f"{{% if m.role == 'role {i}' %}}{{% set x = {i} %}}{{% endif %}}" for i in range(400))
    template = "{% for m in messages %}" + branches + "{{ m.content }}|{% endfor %}"
    several = [{"messages": [{"role": "user", "content": f"{i}.{k}"} for k in range(8)]} for i in range(300)]
    assert render_chats(template, several) == [
        "".join(f"{i}.{k}|" for k in range(8)) for i in range(300)]


def test_a_tokenizer_that_is_damaged(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no tokenizer\.json"):
        Tokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="is damaged"):
        Tokenizer.from_pretrained(tmp_path)
