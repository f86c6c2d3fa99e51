"""`genesis generate`, `chat` and `eval` on a folder."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest

import genesis
from genesis.cli.eval import mean_loss
from genesis.cli.main import main
from genesis.models import AutoModelForCausalLM
from genesis.models.text import Tokenizer
from tests.models.text.small import write_folder

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_folder(tmp_path_factory.mktemp("model")))


def test_generate(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", folder, "--prompt", "hello", "--max-tokens", "5", "--seed", "1", "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    assert re.search(r"prompt \d+ tokens, [\d,.]+ tokens/s; answer \d tokens", shown.err), shown.err


def test_generate_from_standard_input_without_a_template(folder: str, capsys: pytest.CaptureFixture[str],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello"))
    arguments = ["--ignore-chat-template", "--no-verbose", "-m", "4", "--device", "cpu"]
    assert main(["generate", folder, "--prompt", "-", *arguments]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("told, shown", [
    ([], True), (["--verbose"], True), (["--no-verbose"], False), (["--verbose", "T"], True),
    (["--verbose", "false"], False), (["--verbose=F"], False)], ids=str)
def test_speeds_are_told_or_not(told: list[str], shown: bool, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With mlx-lm's words as well: there the folder is behind an option."""
    assert main(["generate", "--model", folder, "--prompt", "hello", "-m", "2", "--device", "cpu", *told]) == 0
    assert ("tokens/s" in capsys.readouterr().err) == shown


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_several_strings_end_an_answer(command: str, folder: str, capsys: pytest.CaptureFixture[str],
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind one option or several; each of them does."""
    more = {"generate": ["--prompt", "hello"], "chat": []}[command]

    def answer(*strings: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
        assert main([command, folder, "-m", "12", "--temp", "0", "--device", "cpu", *strings, *more]) == 0
        return capsys.readouterr().out.rstrip("\n")
    whole = answer()
    early, late = whole[2], whole[8]
    cut = whole[:whole.index(early)]
    assert cut != whole[:whole.index(late)] != whole
    for strings in (["a string that is not there", early], [late, early], [early, late]):
        assert answer("--extra-eos-token", *strings) == cut
        assert answer(*[word for string in strings for word in ("--extra-eos-token", string)]) == cut
    assert answer("--extra-eos-token", "not there", late) == whole[:whole.index(late)]


@pytest.mark.parametrize("words, message", [
    (["chat", "--extra-eos-token", "END", "FOLDER"], "a folder comes before --extra-eos-token, or behind --model"),
    (["generate", "--prompt", "a", "--verbose", "FOLDER"], "none of T, True, F and False"),
    (["generate", "--prompt", "a"], "folder --model is required"),
    (["eval", "FOLDER", "FOLDER/config.json", "--model", "FOLDER"], "not allowed with argument folder")], ids=str)
def test_a_folder_behind_an_option_that_takes_strings(words: list[str], message: str, folder: str,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    """It would be one of them, and another model would answer."""
    with pytest.raises(SystemExit):
        main([word.replace("FOLDER", folder) for word in words])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("plain", [True, False], ids=["text", "chat"])
def test_a_prompt_that_was_read_before_goes_on(folder: str, plain: bool, tmp_path: Path,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    """The answer is that to the whole prompt, and only its end is read."""
    kept = ["--prompt-cache-file", str(tmp_path / "prompt.cache")]
    more = ["--device", "cpu", *(["--ignore-chat-template"] if plain else [])]
    assert main(["generate", folder, "--prompt", "a long story. who is it?", "-m", "8", *more]) == 0
    whole = capsys.readouterr()
    assert main(["cache_prompt", folder, "--prompt", "a long story.", *kept, *more]) == 0
    first = int(re.findall(r"prompt (\d+) tokens", capsys.readouterr().err)[0])
    assert main(["generate", folder, "--prompt", " who is it?", "-m", "8", *kept, *more]) == 0
    again = capsys.readouterr()
    assert again.out == whole.out
    read = [int(re.findall(r"prompt (\d+) tokens", x.err)[0]) for x in (whole, again)]
    assert read[0] == first + read[1]


def test_a_prompt_that_was_read_by_another_model_or_in_another_way(folder: str, tmp_path: Path,
                                                                   capsys: pytest.CaptureFixture[str]) -> None:
    """All of these would answer, and wrongly."""
    kept = ["--prompt-cache-file", str(tmp_path / "prompt.cache")]
    other = write_folder(tmp_path / "other")
    model = AutoModelForCausalLM.from_pretrained(other)
    with genesis.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.01)  # of the same sizes: fine-tuned, perhaps
    model.save_pretrained(other)
    assert main(["cache_prompt", folder, "--prompt", "a story.", *kept, "--device", "cpu"]) == 0
    for what, more, message in (
            (str(other), [], f"was written for another model, {folder}"),
            (folder, ["--ignore-chat-template"], "leave --ignore-chat-template out"),
            (folder, ["--system-prompt", "Be brief."], "give it to genesis cache_prompt")):
        capsys.readouterr()
        assert main(["generate", what, "--prompt", "who?", "-m", "2", "--device", "cpu", *kept, *more]) == 2
        assert message in capsys.readouterr().err
    assert main(["cache_prompt", folder, "--prompt", "a", *kept, "--device", "cpu", "--ignore-chat-template"]) == 0
    capsys.readouterr()
    assert main(["generate", folder, "--prompt", "who?", "-m", "2", "--device", "cpu", *kept]) == 2
    assert "give --ignore-chat-template here, too" in capsys.readouterr().err


@pytest.mark.parametrize("command", [
    ["cache_prompt", "FOLDER", "--prompt", "a", "--prompt-cache-file", "FILE/x", "--device", "cpu"],
    ["cache_prompt", "FOLDER", "--prompt", "a", "--prompt-cache-file", "FOLDER", "--device", "cpu"],
    ["generate", "FOLDER", "--prompt", "a", "--prompt-cache-file", "FILE", "--device", "cpu"],
    ["generate", "FOLDER", "--prompt", "a", "--prompt-cache-file", "FOLDER/model.safetensors", "--device", "cpu"],
    ["generate", "FOLDER", "--prompt", "a", "--max-tokens", "-1", "--device", "cpu"],
    ["eval", "FOLDER", "FILE/x", "--device", "cpu"], ["data", "FILE", "-t", "bytes", "-o", "FILE"],
    ["data", "FILE", "-t", "bytes", "-o", "FILE/x"], ["finetune", "FOLDER", "FILE/x", "-o", "FILE"]], ids=" ".join)
def test_paths_that_are_none_are_one_line(command: list[str], folder: str, tmp_path: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("a text")
    words = [word.replace("FOLDER", folder).replace("FILE", str(tmp_path / "file")) for word in command]
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("genesis: ")


def test_an_answer_goes_on_from_its_beginning(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", folder, "--prompt", "hi", "--prefill-response", "The river", "-m", "4",
                 "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("The river")
    tokens = Tokenizer.from_pretrained(folder)
    written = "<|user|>hi<|end|><|assistant|>The river"
    assert tokens.chat([{"role": "user", "content": "hi"}, {"role": "assistant", "content": " The river "}],
                       continue_final_message=True) == written.replace("The river", " The river ")
    assert f"prompt {len(tokens.encode(written, add_special_tokens=False))} tokens" in shown.err


def test_a_message_that_the_template_changes_cannot_go_on(folder: str) -> None:
    tokens = Tokenizer.from_pretrained(folder)
    tokens.chat_template = "{{ messages[0]['content'] | upper }}"
    with pytest.raises(ValueError, match="cannot go on"):
        tokens.chat([{"role": "user", "content": "hi"}], continue_final_message=True)


@pytest.mark.parametrize("more, shorter", [
    ([], True), (["--repetition-penalty", "1.3"], False), (["--system-prompt", "Be brief."], True)], ids=str)
@pytest.mark.parametrize("kind", ["folder", "endless"])
def test_chat(kind: str, more: list[str], shorter: bool, request: pytest.FixtureRequest,
              capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn answers to the whole conversation, until /new, and reads what is new in it; all where a penalty counts
    what was said."""
    folder = request.getfixturevalue(kind)

    def turns() -> tuple[str, list[int]]:
        monkeypatch.setattr("sys.stdin", io.StringIO("hi\nand more\nand this\n/new\nagain\n"))
        assert main(["chat", folder, "-m", "3", "--temp", "0", "--device", "cpu", *more]) == 0
        shown = capsys.readouterr()
        return shown.out, [int(n) for n in re.findall(r"prompt (\d+) tokens", shown.err)]
    said, read = turns()

    def refuse(*_: object) -> None:
        raise ValueError
    monkeypatch.setattr("genesis.models.generation.caches.KVCache.take", refuse)
    whole, lengths = turns()
    assert said == whole
    assert lengths[0] < lengths[1] < lengths[2] > lengths[3], "a history, until /new"
    assert all(a < b for a, b in zip(read[1:3], lengths[1:3], strict=True)) if shorter else read == lengths


@pytest.mark.parametrize("command", ["generate", "chat", "cache_prompt"])
def test_a_template_is_told_what_else_it_asks_for(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    template = "{{ 'quick' if quick else 'thinking at length ' }}{{ messages[0]['content'] }}"
    other = str(write_folder(tmp_path / "model", template))
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n"))
    more = {"generate": ["--prompt", "hello", "-m", "1"], "chat": ["-m", "1"],
            "cache_prompt": ["--prompt", "hello", "--prompt-cache-file", str(tmp_path / "file")]}[command]
    told = ["--chat-template-config", '{"quick": true}']
    assert main([command, other, "--device", "cpu", *more, *told]) == 0
    assert f"prompt {len('quickhello')} tokens" in capsys.readouterr().err
    for bad in ("{", "[1]", '{"messages": []}'):
        with pytest.raises(SystemExit):
            main([command, other, "--device", "cpu", *more, "--chat-template-config", bad])


@pytest.fixture
def endless(folder: str, tmp_path: Path) -> str:
    """A model without a token that ends a text, and without a template."""
    other = write_folder(tmp_path / "endless", template=None)
    (other / "tokenizer_config.json").write_text("{}")
    return str(other)


def test_a_text_ends_with_its_slots(endless: str, capsys: pytest.CaptureFixture[str]) -> None:
    """However much room the cache is made with."""
    assert main(["generate", endless, "--prompt", "hello", "-m", "500", "--max-kv-size", "300", "--device", "cpu"]) == 0
    assert "answer 295 tokens" in capsys.readouterr().err
    assert main(["generate", endless, "--prompt", "hello", "--max-kv-size", "5", "--device", "cpu"]) == 2
    assert "the prompt has 5 tokens, which leaves no room for an answer: --max-kv-size is 5" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", endless, "--prompt", "hello", "--max-kv-size", "-5", "--device", "cpu"])


def test_a_conversation_is_seen_as_far_as_there_are_slots(endless: str, capsys: pytest.CaptureFixture[str],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\nhow are you\n"))
    assert main(["chat", endless, "--max-tokens", "20", "--max-kv-size", "16", "--temp", "0", "--device", "cpu"]) == 0
    told = re.findall(r"prompt (\d+) tokens.* answer (\d+) tokens", capsys.readouterr().err)
    assert told == [("5", "11"), ("8", "8")]


def test_eval_is_the_loss_of_the_text(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over it")
    assert main(["eval", folder, str(text), "--device", "cpu"]) == 0
    line = capsys.readouterr().out
    found = re.match(r"32 tokens: loss ([\d.]+) nats a token, perplexity ([\d.]+)", line)
    assert found, line
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = genesis.tensor([Tokenizer.from_pretrained(folder).encode(text.read_text())])
    loss = model(ids, labels=ids).loss.item()
    assert abs(float(found[1]) - loss) < 1e-3 and abs(math.log(float(found[2])) - loss) < 1e-3


def test_windows_predict_each_token_once(folder: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = list(b"0123456789")
    whole, pieces = mean_loss(model, ids, 100), mean_loss(model, ids, 4)
    assert whole[1] == pieces[1] == 9 and whole[0] != pieces[0]
    with pytest.raises(ValueError, match="two are needed"):
        mean_loss(model, [1], 4)


@pytest.mark.parametrize("command", [["generate", "--prompt", "x"], ["chat"]])
def test_a_folder_that_is_not_there(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command[0], "no/such/folder", *command[1:]]) == 2
    assert "genesis: there is no folder 'no/such/folder'" in capsys.readouterr().err


def test_a_device_that_is_not_there(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", folder, "--prompt", "x", "--device", "tpu"]) == 2
    assert "genesis: device: invalid device 'tpu'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_bytes_that_are_no_text(command: str, folder: str, capsys: pytest.CaptureFixture[str],
                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff\n"), "utf-8", "surrogateescape"))
    assert main([command, folder, "--device", "cpu", *(["--prompt", "-"] if command == "generate" else [])]) == 2
    assert "genesis: the prompt is no UTF-8 text" in capsys.readouterr().err


def test_a_loss_beyond_all_perplexities(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loud = write_folder(tmp_path / "loud")
    model = AutoModelForCausalLM.from_pretrained(loud)
    with genesis.no_grad():
        model.lm_head.weight.mul_(3000)
    model.save_pretrained(loud)
    (tmp_path / "text.txt").write_text("some text")
    assert main(["eval", str(loud), str(tmp_path / "text.txt"), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.endswith("perplexity inf\n")


def test_what_eval_cannot_read(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
    for path, message in ((tmp_path / "bytes.txt", "bytes.txt is no UTF-8 text"), (tmp_path, "Is a directory")):
        assert main(["eval", folder, str(path), "--device", "cpu"]) == 2
        assert message in capsys.readouterr().err
