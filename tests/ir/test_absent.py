"""Names of torch's that are left out, as modules."""

from __future__ import annotations

import pytest

from genesis.ir.absent import AbsentModules


def test_a_module_that_is_left_out_says_what_to_use() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"no module 'genesis\.fx': (.|\n)*genesis\.explain"):
        AbsentModules.find_spec("genesis.fx")


@pytest.mark.parametrize("name", ["genesis.ops", "genesis.ops.norms", "genesis.nn", "genesis.config", "numpy"])
def test_modules_that_there_are_belong_to_the_other_finders(name: str) -> None:
    """Whoever asks every finder in turn, as pytest does for doctests of one file, is not refused: `torch.ops` is left
    out, the folder `genesis/ops` is there."""
    AbsentModules.find_spec(name)
