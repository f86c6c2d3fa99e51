"""The programs that a newcomer tries first run as printed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
README_PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def last_loss(printed: str) -> float:
    return float(printed.split()[-1])


def test_readme_shows_one_program() -> None:
    assert len(README_PROGRAMS) == 1


@pytest.mark.parametrize("program", README_PROGRAMS)
def test_readme_program_learns(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    assert last_loss(capsys.readouterr().out) < 0.01


def test_quickstart_learns(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    assert last_loss(capsys.readouterr().out) < 0.01


def example(name: str) -> dict[str, Any]:
    """The names of an example of `examples/llm`."""
    return runpy.run_path(str(ROOT / "examples" / "llm" / f"{name}.py"))


def test_a_tiny_model_learns_and_generates_with_a_cache_of_ones_own(tmp_path: Path,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    from genesis.models.generation import generate
    (tmp_path / "text.md").write_text("The compiler reads a graph and writes kernels. " * 40)
    model = example("train_tiny")["train"](steps=20, context=16, batch=4, dim=32, layers=2, texts=tmp_path)
    assert last_loss(capsys.readouterr().out.replace(" nats a byte", "")) < 5.0, "it begins at ln 257 = 5.5"
    ids = list(b"The compiler ")
    found = example("cat_cache")["generate"](model, ids, 12)
    assert [*ids, *found] == generate(model, [ids], 12, temperature=0).tolist()[0]


def test_low_rank_layers_learn_to_count(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers")
    import genesis
    from genesis.models import LlamaConfig, LlamaForCausalLM
    from genesis.models.text import byte_tokenizer
    genesis.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=257, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
                                         num_attention_heads=2, initializer_range=0.3))
    names = set(model.state_dict())
    example("finetune_lora")["finetune"](model, byte_tokenizer(), steps=40, rank=4)
    first, *_, last = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert last < 0.8 * first
    assert set(model.state_dict()) == names


def test_low_rank_layers_learn_within_a_table_of_positions() -> None:
    """Of 64 tokens: that of the model which `genesis demo` trains."""
    pytest.importorskip("tokenizers")
    import genesis
    from genesis.models import GPT2Config, GPT2LMHeadModel
    from genesis.models.text import byte_tokenizer
    genesis.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=257, n_embd=16, n_layer=1, n_head=2, n_positions=64))
    before = {name: x.numpy().copy() for name, x in model.state_dict().items()}
    example("finetune_lora")["finetune"](model, byte_tokenizer(), steps=2, rank=2)
    assert any((x.numpy() != before[name]).any() for name, x in model.state_dict().items())


def test_a_graph_network_finds_the_halves(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "graph_network.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) > 0.9


SMALL = {"vae": {"steps": 251, "batch": 32}, "diffusion": {"steps": 120, "batch": 64},
         "char_rnn": {"steps": 51, "batch": 4, "time": 16},
         "ppo": {"rounds": 2, "epochs": 1}, "vision_transformer": {"steps": 3, "batch": 8},
         "physics_informed": {"steps": 60, "points": 32}}
"""Examples, and arguments of their `train` for which a few steps do."""


def small(name: str) -> tuple[dict[str, Any], Any]:
    """The names of an example, and what a short training gives."""
    names = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    return names, names["train"](**SMALL[name])


def first_and_last(printed: str) -> tuple[float, float]:
    first, *_, last = [float(line.split()[-1]) for line in printed.splitlines()]
    return first, last


def test_an_autoencoder_learns_bars_and_draws(capsys: pytest.CaptureFixture[str]) -> None:
    names, model = small("vae")
    first, last = first_and_last(capsys.readouterr().out)
    assert last < first / 2
    assert [len(row) for row in names["draw"](model, 2).split("\n")] == [19] * 8


def test_a_diffusion_model_takes_noise_away(capsys: pytest.CaptureFixture[str]) -> None:
    import genesis
    names, model = small("diffusion")
    first, last = first_and_last(capsys.readouterr().out)
    assert last < 0.9 * first
    points = names["sample"](model, 20)
    assert points.shape == (20, 2) and genesis.isfinite(points).all()
    assert names["distance"](names["spiral"](50)) < 0.05


def test_a_recurrent_network_learns_to_spell(capsys: pytest.CaptureFixture[str]) -> None:
    names, model = small("char_rnn")
    first, last = first_and_last(capsys.readouterr().out)
    assert last < 0.7 * first
    assert names["write"](model, "one ", 5).startswith("one ")
    assert [names["spelled"](n) for n in (0, 19, 20, 42)] == ["zero", "nineteen", "twenty", "forty two"]


def test_an_agent_plays_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    import genesis
    _, agent = small("ppo")
    assert min(first_and_last(capsys.readouterr().out)) >= 9, "a pole that nobody holds falls after 9 turns"
    policy, value = agent(genesis.zeros(3, 4))
    assert policy.probs.shape == (3, 2) and value.shape == (3,)


def test_a_vision_transformer_runs_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    names, model = small("vision_transformer")
    assert first_and_last(capsys.readouterr().out)[0] == pytest.approx(1.1, abs=0.4), "ln 3 at first"
    assert 0 <= names["right"](model, 10) <= 1


def test_a_network_learns_from_its_equation(capsys: pytest.CaptureFixture[str]) -> None:
    names, model = small("physics_informed")
    first, last = first_and_last(capsys.readouterr().out)
    assert last < first / 2
    assert names["error"](model) < 2.0
