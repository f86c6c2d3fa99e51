"""Modules whose parameters are not drawn."""

from __future__ import annotations

from typing import Any


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """An instance of the class. Its parameters have the values of any new one: drawing them is lazy, and free where
    they
    are overwritten before anything reads them.

    >>> from genesis import nn
    >>> nn.utils.skip_init(nn.Linear, 2, 3)
    Linear(in_features=2, out_features=3, bias=True)
    """
    return module_cls(*args, **kwargs)
