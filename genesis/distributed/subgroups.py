"""Groups that several ranks make at once, under torch's names: parts of equal size, listed ones, a group's splits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import current, get_backend_config, group_of, new_group
from genesis.ir.errors import failure


def new_subgroups(group_size: int | None = None, group: Any = None, timeout: timedelta | None = None,
                  backend: str | None = None, pg_options: Any = None,
                  group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """Groups of so many ranks each, one after another, of a group or of all. All processes of the run call this.

    Args:
        group_size: None takes the number of this host's GPUs.
        group: whose ranks are shared out.
        timeout, backend, pg_options, group_desc: see `new_group`.

    Returns:
        The group that this process is in, and all of them.

    Raises:
        ValueError: the ranks cannot be shared out so.
    """
    if group_size is None:
        from genesis import cuda
        if not cuda.is_available():
            raise failure("new_subgroups", "without a GPU a group_size is needed", error=ValueError)
        group_size = cuda.device_count()
    whole = current().groups[0] if group is None else group
    if group_size <= 0:
        raise failure("new_subgroups", f"The arg 'group_size' ({group_size}) must be positive", error=ValueError)
    ranks = _ranks_of("new_subgroups", whole)
    if len(ranks) < group_size:
        raise failure("new_subgroups", f"The arg 'group_size' ({group_size}) must not exceed the world size "
                      f"({len(ranks)})", error=ValueError)
    if len(ranks) % group_size:
        raise failure("new_subgroups", f"The world size ({len(ranks)}) must be divisible by {group_size=}",
                      error=ValueError)
    parts = [ranks[at:at + group_size] for at in range(0, len(ranks), group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: timedelta | None = None,
                                 backend: str | None = None, pg_options: Any = None,
                                 group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """A group of each list of ranks, of which none is in two. All processes of the run call this.

    Returns:
        The group that this process is in, None if it is in none, and all of them.

    Raises:
        ValueError: there is no list, or a rank is in two.
    """
    name, run = "new_subgroups_by_enumeration", current()
    if not ranks_per_subgroup_list:
        raise failure(name, "The arg 'ranks_per_subgroup_list' cannot be empty", error=ValueError)
    _check_apart(name, ranks_per_subgroup_list)
    groups = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
              for ranks in ranks_per_subgroup_list]
    own = next((group for group, ranks in zip(groups, ranks_per_subgroup_list, strict=True) if run.rank in ranks), None)
    return own, groups


def split_group(parent_pg: Any = None, split_ranks: Sequence[Sequence[int]] | None = None,
                timeout: timedelta | None = None, pg_options: Any = None, group_desc: str | None = None,
                backend: str | None = None) -> ProcessGroup | None:
    """The part of a group that this process is in, None if it is in none. The group's processes alone call this.

    Args:
        parent_pg: the group; None is that of all.
        split_ranks: for each part the places of its processes in the group.
        timeout, pg_options, group_desc, backend: see `new_group`.

    Raises:
        ValueError: there is no part, one has a process that is none of the group's, or that another one has; or this
            process is outside of the group.
    """
    if not split_ranks:
        raise failure("split_group", "split_ranks cannot be None or empty", error=ValueError)
    parent = group_of(parent_pg)
    if parent is None:
        raise failure("split_group", "this process is not part of the parent group", error=ValueError)
    for places in split_ranks:
        if not set(places) <= set(range(parent.size())):
            raise failure("split_group", f"{list(places)} are not places in a group of {parent.size()}",
                          error=ValueError)
    _check_apart("split_group", split_ranks)
    own = next((places for places in split_ranks if parent.rank() in places), None)
    if own is None:
        return None
    found: ProcessGroup = new_group([parent.ranks[place] for place in own], timeout or parent.timeout,
                                    backend or get_backend_config(parent), pg_options,
                                    use_local_synchronization=True, group_desc=group_desc)
    return found


def _ranks_of(name: str, group: ProcessGroup) -> list[int]:
    if not isinstance(group, ProcessGroup):
        raise failure(name, "this process is not part of the group: it does not know the group's ranks",
                      error=ValueError, hint="new_subgroups_by_enumeration lists them")
    return list(group.ranks)


def _check_apart(name: str, parts: Sequence[Sequence[int]]) -> None:
    of: dict[int, Sequence[int]] = {}
    for ranks in parts:
        for rank in ranks:
            if rank in of:
                raise failure(name, f"Rank {rank} has appeared in both subgroup {list(of[rank])} and {list(ranks)}",
                              error=ValueError)
        of |= dict.fromkeys(ranks, ranks)
