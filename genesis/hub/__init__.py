"""`genesis.hub`: weights from the web, in torch's own cache, as model files with pretrained weights ask for them.

    url ─ download_url_to_file ─▶ a file of the cache ─ genesis.load ─▶ a state dict

Weights are data, which `genesis.load` reads without executing any of it. A repository's code is not downloaded:
`load`, `list` and `help`, which would run it, raise.
"""

from __future__ import annotations

from typing import Any, NoReturn

from genesis.ir.errors import failure
from genesis.ir.suggest import suggesting
from genesis.utils.downloads import download_url_to_file, get_dir, load_state_dict_from_url, set_dir

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: bool | str | None = None,
         force_reload: bool = False, verbose: bool = True, skip_validation: bool = False, **kwargs: Any) -> NoReturn:
    """Refused: it would run a repository's code."""
    _refuse("load")


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: bool | str | None = None,
         verbose: bool = True) -> NoReturn:
    """Refused, as `load` is."""
    _refuse("list")


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False,
         trust_repo: bool | str | None = None) -> NoReturn:
    """Refused, as `load` is."""
    _refuse("help")


def _refuse(name: str) -> NoReturn:
    raise failure(f"hub.{name}", "it would run downloaded code",
                  hint="clone the repository, import its model, and genesis.load the weights")


__getattr__ = suggesting(__name__)
