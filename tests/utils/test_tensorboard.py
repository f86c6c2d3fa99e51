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
        writer.add_pr_curve("curve", genesis.tensor([0, 1, 1, 0]), genesis.tensor([0.1, 0.8, 0.3, 0.6]), 1)
    found = reader.EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(x.step, x.value) for x in found.Scalars("loss")] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert found.Histograms("weights")[0].histogram_value.num == 10
    assert (found.Images("picture")[0].height, found.Images("picture")[0].width) == (4, 5)
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val[0] == b"**done**"
    curve = np.array(found.Tensors("curve")[0].tensor_proto.float_val).reshape(6, 127)
    assert curve[:, 0].tolist() == [2, 2, 0, 0, 0.5, 1] and curve[:2, 63].tolist() == [1, 1]
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"both_a", "both_b"}


def test_embeddings_are_tables_beside_the_run(tmp_path: Path) -> None:
    """TensorBoard's own parser reads what the projector is told."""
    config = pytest.importorskip("tensorboard.plugins.projector.projector_config_pb2").ProjectorConfig()
    text_format = pytest.importorskip("google.protobuf.text_format")
    image = pytest.importorskip("PIL.Image")
    with SummaryWriter(tmp_path) as writer:
        writer.add_embedding(genesis.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), ["a", "b\tc", 3],
                             genesis.rand(3, 1, 4, 5), global_step=7)
        writer.add_embedding(np.ones((1, 2)), [["x", 1]], metadata_header=["name", "size"], tag="more")
        with pytest.raises(ValueError, match="#labels"):
            writer.add_embedding(genesis.ones(2, 2), ["only one"])
        with pytest.raises(AttributeError, match="SummaryWriter has no add_video"):
            writer.add_video("clip", genesis.ones(1, 2, 3, 4, 4))
    text_format.Parse((tmp_path / "projector_config.pbtxt").read_text(), config)
    first, second = config.embeddings
    assert (tmp_path / first.tensor_path).read_text() == "1.0\t2.0\n3.0\t4.0\n5.0\t6.0\n"
    assert (tmp_path / first.metadata_path).read_text() == "a\nb c\n3\n"
    assert list(first.sprite.single_image_dim) == [5, 4]
    assert image.open(tmp_path / first.sprite.image_path).size == (10, 8)
    assert (tmp_path / second.metadata_path).read_text() == "name\tsize\nx\t1\n" and not second.sprite.image_path
