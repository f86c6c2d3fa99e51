"""Device meshes as programs for torch make and ask them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import genesis
from genesis import distributed as dist
from genesis import nn
from genesis.distributed.fsdp import fully_shard
from genesis.distributed.tensor.parallel import parallelize_module
from tests.distributed.ranks import Ranks, device_type


def told(mesh: dist.DeviceMesh) -> tuple[Any, ...]:
    return mesh.mesh.tolist(), mesh.mesh_dim_names, mesh.get_coordinate()


def turned(rank: int, size: int) -> dict[str, Any]:
    """A mesh that lists the ranks backwards: parameters are shared out, and found again, in its order."""
    mesh = dist.DeviceMesh(device_type(), [1, 0])
    styles: Any = dist.tensor.parallel
    genesis.manual_seed(0)
    layer: Any = nn.Linear(3, 4).to(device_type())
    whole, x = layer.weight.tolist(), genesis.arange(3.0).reshape(1, 3)
    expected = layer(x).tolist()
    fully_shard(layer, mesh=mesh)
    columns: Any = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).to(device_type())
    alike = columns(x).tolist()
    parallelize_module(columns, mesh, {"0": styles.ColwiseParallel(),
                                       "1": styles.RowwiseParallel()})
    return {"part": layer.weight.to_local().tolist() == (whole[:2] if rank else whole[2:]),
            "whole": layer.weight.full_tensor().tolist() == whole, "out": layer(x).tolist() == expected,
            "parallel": genesis.allclose(columns(x), genesis.tensor(alike)), "local": mesh.get_local_rank(),
            "group": dist.get_process_group_ranks(mesh.get_group())}


def test_a_mesh_has_its_ranks_in_its_own_order(two: Ranks) -> None:
    """Its groups had them sorted, so that parts were gathered in another order than they were shared out in."""
    for rank, found in enumerate(two(turned)):
        assert found["part"] and found["whole"] and found["out"] and found["parallel"]
        assert (found["local"], found["group"]) == (1 - rank, [1, 0])


def of_groups(rank: int, size: int) -> dict[str, Any]:
    world = dist.new_group()
    line = dist.DeviceMesh.from_group(world, device_type(), mesh_dim_names=("dp",))
    made = dist.init_device_mesh(device_type(), (2, 2), mesh_dim_names=("a", "b"))
    square = dist.DeviceMesh.from_group(made.get_all_groups(), device_type(), [[0, 1], [2, 3]],
                                        mesh_dim_names=("x", "y"))
    flat, again = made["a", "b"]._flatten("all"), made._flatten()
    cube = dist.init_device_mesh(device_type(), (2, 1, 2), mesh_dim_names=("pp", "dp", "cp"))
    both = cube["pp", "dp"]._flatten()
    y = genesis.ones(1) * (rank + 1)
    dist.all_reduce(y, group=both.get_group())
    with made as entered:
        assert entered is made
    return {"line": told(line), "same group": line.get_group() is world, "square": told(square),
            "rows": told(square["y"]), "flat": told(flat), "default": told(again), "named": made["all"] is flat,
            "both": told(both), "sum": y.item(), "found": cube["pp_dp"] is both and cube["cp"]._flatten("cp").ndim == 1,
            "device": device_type(), "shown": (repr(made), repr(dist.init_device_mesh(device_type(), (2, 2))))}


def test_meshes_of_groups_and_flat_ones(four: Ranks) -> None:
    for rank, found in enumerate(four(of_groups)):
        assert found["line"] == ([0, 1, 2, 3], ("dp",), [rank]) and found["same group"]
        assert found["square"] == ([[0, 1], [2, 3]], ("x", "y"), [rank // 2, rank % 2])
        pair = [rank - rank % 2, rank - rank % 2 + 1]
        assert found["rows"] == (pair, ("y",), [rank % 2])
        assert found["flat"] == ([0, 1, 2, 3], ("all",), [rank]) and found["named"]
        assert found["default"] == ([0, 1, 2, 3], ("a_b",), [rank])
        assert found["both"] == ([rank % 2, rank % 2 + 2], ("pp_dp",), [rank // 2]) and found["found"]
        assert found["sum"] == 2 * (rank % 2) + 4
        device = found["device"]
        assert found["shown"] == (f"DeviceMesh((a=2, b=2), '{device}', ranks [[0, 1], [2, 3]])",
                                  f"DeviceMesh((2, 2), '{device}', ranks [[0, 1], [2, 3]])")


def refused(rank: int, size: int) -> dict[str, str]:
    group = dist.new_group()
    plain = dist.init_device_mesh(device_type(), (2,))
    named = dist.init_device_mesh(device_type(), (2, 1), mesh_dim_names=("a", "b"))
    calls: dict[str, Callable[[], Any]] = {
        "slice": lambda: plain["dp"], "flatten": lambda: plain._flatten("x"),
        "index": lambda: dist.init_device_mesh("cuda:0", (2,)), "other": lambda: named["c"],
        "mesh": lambda: dist.DeviceMesh.from_group(group, device_type(), [1, 0]),
        "no mesh": lambda: dist.DeviceMesh.from_group([group, group], device_type()),
        "joined": lambda: named["a"].joined(named._flatten()), "taken": lambda: named._flatten("a")}
    found = {}
    for name, call in calls.items():
        try:
            call()
        except (RuntimeError, ValueError, KeyError) as error:
            found[name] = f"{type(error).__name__} {error.args[0].splitlines()[0]}"
    return found


def test_what_a_mesh_cannot_say_is_refused(two: Ranks) -> None:
    for found in two(refused):
        assert found.pop("joined").startswith("ValueError DeviceMesh: ")
        assert found.pop("other").startswith("KeyError DeviceMesh: no dimension is named 'c'")
        assert found == {
            "slice": "RuntimeError DeviceMesh: Cannot slice a DeviceMesh without mesh_dim_names!",
            "flatten": "RuntimeError DeviceMesh: Cannot flatten a DeviceMesh without mesh_dim_names!",
            "index": "RuntimeError init_device_mesh: Device type with index is not supported but got cuda:0.",
            "mesh": "ValueError DeviceMesh: the mesh [1, 0] is not that of a group of ranks [0, 1]",
            "no mesh": "ValueError DeviceMesh: of several groups the mesh and its mesh_dim_names are needed",
            "taken": "ValueError DeviceMesh: a dimension is named 'a' already"}
