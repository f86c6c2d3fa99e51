"""`genesis.hub`: weights at an address come through the cache; a repository's code is not run."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch

import genesis
from genesis import hub
from genesis.utils import downloads


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(downloads, "_chosen", None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    return tmp_path


def weights(folder: Path) -> tuple[Path, str]:
    """A file of torch's, with the digits of its hash in its name, and its address."""
    torch.save({"weight": torch.arange(3.0)}, folder / "x")
    digits = hashlib.sha256((folder / "x").read_bytes()).hexdigest()[:8]
    path = (folder / "x").rename(folder / f"net-{digits}.pth")
    return path, path.as_uri()


def test_weights_are_downloaded_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, url = weights(cache)
    found = hub.load_state_dict_from_url(url, progress=True, check_hash=True, map_location="cpu")
    assert found["weight"].tolist() == [0.0, 1.0, 2.0] and "Downloading" in capsys.readouterr().err
    assert (cache / "home" / "hub" / "checkpoints" / path.name).exists()
    path.unlink()
    from genesis.utils.model_zoo import load_url
    assert load_url(url)["weight"].tolist() == [0.0, 1.0, 2.0] and not capsys.readouterr().err


def test_a_file_of_another_hash_is_refused_and_not_kept(cache: Path) -> None:
    path, url = weights(cache)
    other = path.rename(cache / "net-00000000.pth")
    for library in (hub, torch.hub):
        with pytest.raises(RuntimeError, match="invalid hash value"):
            library.load_state_dict_from_url(other.as_uri(), model_dir=str(cache / "kept"), check_hash=True)
    assert list((cache / "kept").iterdir()) == []
    assert hub.load_state_dict_from_url(other.as_uri(), str(cache / "kept"), file_name="mine.pth")["weight"].sum() == 3
    assert [file.name for file in (cache / "kept").iterdir()] == ["mine.pth"]
    with pytest.raises(OSError):
        hub.load_state_dict_from_url(url, model_dir=str(cache / "kept"))


def test_the_folder_is_torchs(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "_hub_dir", None)
    assert hub.get_dir() == torch.hub.get_dir()
    monkeypatch.delenv("TORCH_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "xdg"))
    assert hub.get_dir() == torch.hub.get_dir()
    hub.set_dir(cache / "own")
    assert hub.get_dir() == str(cache / "own")


@pytest.mark.parametrize("call", [lambda: hub.load("a/b", "net", pretrained=True), lambda: hub.list("a/b"),
                                  lambda: hub.help("a/b", "net")])
def test_code_is_not_run(call: Any) -> None:
    with pytest.raises(RuntimeError, match="downloaded code"):
        call()
    assert hasattr(genesis, "hub") and hasattr(genesis.utils, "model_zoo")
