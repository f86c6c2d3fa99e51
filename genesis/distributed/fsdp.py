"""Torch's names for fully sharded training; what they are is in `genesis.nn.parallel.fsdp`, which stands on modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.frontend.later import names_later

if TYPE_CHECKING:
    from genesis.nn.parallel.fsdp import FSDPModule as FSDPModule
    from genesis.nn.parallel.fsdp import MixedPrecisionPolicy as MixedPrecisionPolicy
    from genesis.nn.parallel.fsdp import fully_shard as fully_shard
    from genesis.nn.parallel.fsdp import register_fsdp_forward_method as register_fsdp_forward_method

__path__: list[str] = []
"""No folder: an import of a module below comes to the finder that says what to use instead (`ir/absent.py`)."""

__getattr__, __dir__ = names_later(__name__)
