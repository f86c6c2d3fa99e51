"""`genesis why`: reasons for kernels and refusals, with the script's lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from genesis import engine
from genesis.cli.main import main
from genesis.ir import Node
from genesis.passes.remat import remat
from genesis.passes.remat.network import StepCosts
from genesis.passes.remat.remat import decided

SCRIPT = """\
import genesis

x = genesis.randn(64, 32)
rows = (x * 2 + 1).softmax(-1)
print((rows @ x.T).sum().item())
"""


def why(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    path = tmp_path / "small.py"
    path.write_text(SCRIPT)
    engine.reset()
    assert main(["why", str(path), *words]) == 0
    return capsys.readouterr().out


def test_kernels_have_reasons_and_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = why(tmp_path, capsys)
    assert "for cuda" in text
    assert "matmul has a kernel of its own" in text
    assert "small.py:4: rows = (x * 2 + 1).softmax(-1)" in text


def test_one_op(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "softmax" not in why(tmp_path, capsys, "--op", "matmul").splitlines()[1]
    assert "the program has no op named conv" in why(tmp_path, capsys, "--op", "conv")
    assert "no op named sofmax; did you mean 'softmax'?" in why(tmp_path, capsys, "--op", "sofmax")


def test_an_op_that_is_decomposed_is_shown_by_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = why(tmp_path, capsys, "--op", "softmax").splitlines()
    assert found[1].startswith("softmax is computed as other ops")
    assert any("over the same 64 rows" in line for line in found)
    assert not any("matmul has a kernel" in line for line in found)


@pytest.mark.parametrize(("mask", "said"), [
    ("", "streamed_attention: the copy engine brings its tiles"),
    ("attn_mask=genesis.ones(1024, 1024).bool()", "attention: its tiles are not streamed, because it takes no mask"),
])
def test_the_form_of_a_kernel_has_a_reason(mask: str, said: str, tmp_path: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "attention.py"
    path.write_text(f"""import genesis
q = genesis.randn(2, 16, 1024, 64).bfloat16()
genesis.eval(genesis.nn.functional.scaled_dot_product_attention(q, q, q, {mask}))
""")
    engine.reset()
    assert main(["why", str(path)]) == 0
    assert said in capsys.readouterr().out


def test_a_missing_script_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "nowhere.py"]) == 2
    assert "there is no file nowhere.py" in capsys.readouterr().err


RANKS = """\
import genesis
from genesis import distributed as dist, nn

dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", 0, is_master=True), rank=0, world_size=1)
model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)]), bucket_cap_mb=0.0003)
optimizer = genesis.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(genesis.ones(2, 8)).square().mean().backward()
    CLIP
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("clip", ["pass", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"])
def test_collectives_are_told_with_what_hides_them_and_what_waits(clip: str, tmp_path: Path,
                                                                  capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ranks.py"
    path.write_text(RANKS.replace("CLIP", clip))
    engine.reset()
    assert main(["why", str(path)]) == 0
    text = capsys.readouterr().out
    told = {part.split(":")[0]: part for part in text[text.index("collective 1"):].split("\ncollective ")}
    first, last = told["collective 1"], told["3"]
    assert "all_reduce of 2 tensors, 288 bytes\n" in first and "ranks.py:9: model(genesis.ones(2, 8))" in first
    assert "placed behind " in first and "which makes the last of what it moves" in first
    assert "hidden by" in first and "matmul" in first.split("hidden by")[1].split("\n")[0]
    held = "collective 3, the last of 3, though its gradients come with 3 of them: it reads " in text
    if clip == "pass":
        assert "waited for by 1 kernel that moves" in first and "adamw" in first.split("waited for by")[1]
        assert "adamw" in last.split("hidden by")[1].split("\n")[0], "updates of the buckets before"
        assert not held
    else:
        assert "nothing hides it: each kernel is one that it waits for, or that waits for it" in last
        assert held and "clip_grad_norm_" in text[text.index("the last of 3"):]


def test_a_concatenation_says_whether_it_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "parts.py"
    path.write_text("""import genesis
x, a, b, c = (genesis.randn(*shape) for shape in ((256, 64), (64, 48), (64, 40), (64, 33)))
genesis.eval(genesis.cat([x @ a, x @ b], 1), genesis.cat([x @ a.sin(), x @ c], 1))
""")
    engine.reset()
    assert main(["why", str(path)]) == 0
    text = capsys.readouterr().out
    assert "matmul has a kernel of its own; 1 of its results is written where its concatenation lies" in text
    assert "concat: its parts were written where it lies: nothing is left to do" in text
    assert "not fused, because this part lies at no multiple of 16 bytes: the concatenation is copied:" in text


@pytest.mark.parametrize("rank, heard", [("0", True), ("1", False)])
def test_of_several_ranks_the_first_alone_reports(rank: str, heard: bool, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str],
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks of `torchrun -m genesis why train.py` printed the same report, line by line beside each other."""
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert bool(why(tmp_path, capsys)) is heard


def test_what_is_kept_as_it_would_wait_for_itself_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """A value of a step that is to be made again behind a kernel that reads it, which no program here asks for."""
    def circles(step: StepCosts, *arguments: Any) -> dict[Node, Node]:
        found = decided(step, *arguments)
        return {x: step.value(step.groups[min(step.far(x))].outputs[0]) for x in filter(step.far, found)}
    monkeypatch.setattr(remat, "decided", circles)
    path = tmp_path / "step.py"
    path.write_text("""import genesis
from genesis import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(3)])
model(genesis.ones(2048, 256)).square().sum().backward()
genesis.eval([p.grad for p in model.parameters()])
""")
    engine.reset()
    assert main(["why", str(path)]) == 0
    found = capsys.readouterr().out
    assert f"not fused, because {remat.WAITS}:" in found and "(step.py:5: model(" in found.partition(remat.WAITS)[2]
