"""Names of torch's that are private, and that programs import all the same."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch

import genesis

IMPORTED = """nn.common_types _size_1_t _size_2_t _size_3_t _size_any_t _size_2_opt_t _ratio_2_t _ratio_any_t
nn.modules.utils _pair _single _triple _quadruple _ntuple _reverse_repeat_tuple
nn.modules.transformer _get_clones _get_activation_fn
nn.modules.module _addindent _IncompatibleKeys
nn.init _calculate_fan_in_and_fan_out _no_grad_trunc_normal_ _no_grad_uniform_ _no_grad_normal_ _no_grad_fill_
nn.parameter is_lazy
optim.optimizer required ParamsT
autograd.function InplaceFunction
utils._pytree tree_map tree_flatten tree_unflatten tree_map_only tree_leaves
utils.data._utils.collate default_collate default_convert
types _size Number Device _dtype _device
_tensor Tensor
_utils _flatten_dense_tensors _unflatten_dense_tensors _take_tensors"""


@pytest.mark.parametrize("line", IMPORTED.splitlines(), ids=lambda line: line.partition(" ")[0])
def test_they_can_be_imported(line: str) -> None:
    module, *names = line.split()
    for library in ("torch", "genesis"):
        found = import_module(f"{library}.{module}")
        assert [name for name in names if not hasattr(found, name)] == [], library


def both(call: Any) -> None:
    """The call gives the same with both libraries."""
    ours, theirs = call("genesis", genesis), call("torch", torch)
    assert str(ours) == str(theirs).replace("torch", "genesis")


def test_nests() -> None:
    def call(name: str, T: Any) -> Any:
        pytree = import_module(f"{name}.utils._pytree")
        leaves, spec = pytree.tree_flatten({"a": [1, (2, None)], "b": T.ones(1)})
        with pytest.raises(ValueError, match="leaves"):
            pytree.tree_unflatten([1], spec)
        return [leaves, pytree.tree_unflatten([5, 6, 7, 8], spec), pytree.tree_map(lambda x: x * 2, [1, {"c": (2,)}]),
                pytree.tree_map_only(int, lambda x: -x, [1, "a", (2, 0.5)]), pytree.tree_leaves(3), spec.num_leaves,
                pytree.tree_flatten([[1, 2], [3]], is_leaf=lambda x: isinstance(x, list) and len(x) == 1)[0],
                pytree.tree_map(lambda x, y: x + y, [1, (2,)], [3, (4,)])]
    both(call)


def test_several_tensors_as_one() -> None:
    def call(name: str, T: Any) -> Any:
        tools = import_module(f"{name}._utils")
        xs = [T.arange(6.0).reshape(2, 3), T.ones(2), T.zeros(1, 2)]
        flat = tools._flatten_dense_tensors(xs)
        groups = tools._take_tensors([*xs, T.arange(3), T.ones(9)], 36)
        return [flat, tools._unflatten_dense_tensors(flat * 2, xs), sorted(str(group) for group in groups)]
    both(call)


def test_parts_of_modules() -> None:
    def call(name: str, T: Any) -> Any:
        module, utils = import_module(f"{name}.nn.modules.module"), import_module(f"{name}.nn.modules.utils")
        transformer, parameter = import_module(f"{name}.nn.modules.transformer"), import_module(f"{name}.nn.parameter")
        clones = transformer._get_clones(T.nn.Linear(1, 2), 2)
        with pytest.raises(RuntimeError, match="relu/gelu"):
            transformer._get_activation_fn("tanh")
        init = import_module(f"{name}.nn.init")
        leaf = T.ones(3, requires_grad=True)
        init._no_grad_fill_(leaf, 2.0)
        assert init._no_grad_trunc_normal_(T.empty(9), 0.0, 1.0, -0.1, 0.1).abs().max() <= 0.1
        return [module._addindent("a\nb\nc", 2), utils._reverse_repeat_tuple((1, 2, 3), 2), clones, leaf,
                clones[0].weight is clones[1].weight, transformer._get_activation_fn("relu")(T.tensor([-1.0, 1.0])),
                parameter.is_lazy(T.nn.LazyLinear(2).weight), parameter.is_lazy(clones[0].weight),
                isinstance(T.nn.Linear(1, 1).load_state_dict(T.nn.Linear(1, 1).state_dict()), module._IncompatibleKeys)]
    both(call)
