"""Names of a module's parts: registering takes a free name, assigning moves one, as in torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import genesis


def module(T: Any) -> Any:
    """One with a parameter, a buffer, a child and a plain attribute."""
    found = T.nn.Linear(2, 2)
    found.register_buffer("buffer", T.ones(1))
    found.add_module("child", T.nn.ReLU())
    found.plain = 3
    return found


def registered(found: Any) -> list[list[str]]:
    walks = found.named_parameters(), found.named_buffers(), found.named_children()
    return [[name for name, _ in walk] for walk in walks]


REGISTER = {
    "parameter": lambda T, m, name: m.register_parameter(name, T.nn.Parameter(T.ones(1))),
    "buffer": lambda T, m, name: m.register_buffer(name, T.ones(2)),
    "module": lambda T, m, name: m.add_module(name, T.nn.Tanh()),
}
ASSIGN = {
    "parameter": lambda T: T.nn.Parameter(T.ones(1)),
    "buffer": lambda T: T.nn.Buffer(T.ones(1)),
    "module": lambda T: T.nn.Tanh(),
    "tensor": lambda T: T.ones(1),
    "number": lambda T: 3,
    "nothing": lambda T: None,
}


def outcome(T: Any, change: Any) -> Any:
    """What the names are then, or the kind of error."""
    found = module(T)
    try:
        change(found)
    except (KeyError, TypeError) as error:
        return type(error), "already exists" in str(error)
    return registered(found)


@pytest.mark.parametrize("name", ["weight", "buffer", "child", "plain", "forward", "new", "a.b", ""])
@pytest.mark.parametrize("kind", REGISTER)
def test_registering_takes_a_free_name(kind: str, name: str) -> None:
    ours, theirs = (outcome(T, lambda m, T=T: REGISTER[kind](T, m, name)) for T in (genesis, torch))
    assert ours == theirs


@pytest.mark.parametrize("name", ["weight", "buffer", "child", "plain", "new"])
@pytest.mark.parametrize("kind", ASSIGN)
def test_assigning_moves_a_name(kind: str, name: str) -> None:
    if (kind, name) == ("buffer", "plain"):  # torch takes parameters and modules there, but no buffer
        return
    ours, theirs = (outcome(T, lambda m, T=T: setattr(m, name, ASSIGN[kind](T))) for T in (genesis, torch))
    assert ours == theirs


def test_an_own_setstate_calls_the_modules() -> None:
    for T in (genesis, torch):
        class Old(T.nn.Linear):  # type: ignore[misc, name-defined]
            def __setstate__(self, state: Any) -> None:
                super().__setstate__(state)
                self.__dict__.setdefault("activation", "relu")
        import copy
        assert copy.deepcopy(Old(2, 2)).activation == "relu"


def test_a_part_of_a_dataset_asks_for_several_samples_at_once() -> None:
    for T in (genesis, torch):
        class Squares(T.utils.data.Dataset):  # type: ignore[misc, name-defined]
            def __getitems__(self, indices: list[int]) -> list[int]:
                return [i * i for i in indices]

            def __len__(self) -> int:
                return 9
        data = T.utils.data
        part = data.Subset(Squares(), [3, 5, 7])
        loader: data.DataLoader[Any] = data.DataLoader(part, batch_size=2)
        assert [batch.tolist() for batch in loader] == [[9, 25], [49]]
        assert data.StackDataset(part, part).__getitems__([0, 2]) == [(9, 9), (49, 49)]
        assert data.DataLoader[int] is not None
