"""`SummaryWriter`: what is written is what TensorBoard's own reader finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genesis
from genesis.utils.tensorboard import SummaryWriter


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install genesis-compiler\[tensorboard\]"):
        SummaryWriter(tmp_path)


def test_what_is_written_is_found(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    pytest.importorskip("PIL")
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", genesis.tensor(0.5, requires_grad=True) * step, step)
        writer.add_histogram("weights", genesis.arange(10.0), 1)
        writer.add_image("picture", genesis.rand(3, 4, 5), 1)
        writer.add_images("pictures", genesis.rand(5, 1, 4, 4))
        writer.add_text("note", "**done**", 2)
        writer.add_scalars("both", {"a": 1, "b": np.float32(2)}, 0)
    found = reader.EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(x.step, x.value) for x in found.Scalars("loss")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert found.Histograms("weights")[0].histogram_value.num == 10
    assert (found.Images("picture")[0].height, found.Images("picture")[0].width) == (4, 5)
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val[0] == b"**done**"
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"both_a", "both_b"}
