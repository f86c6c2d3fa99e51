"""Where a process finds its place in a run: the variables that torchrun, srun and mpirun set."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from genesis.ir.errors import failure
from genesis.runtime.collectives import LAUNCHERS

DEFAULT_PORT: Final = 29500
"""torch's port of the store where the launcher names none."""


STEPS_PORTS: Final = range(20000, 30000)
"""Ports of Slurm's steps: below those that Linux gives to connections."""


@dataclass(frozen=True)
class Place:
    """A process' place in a run.

    Attributes:
        rank, world_size: among all processes.
        local_rank: among those of this host: the number of its GPU.
        address, port: where the store is served.
        served: somebody serves it already (torchrun's agent).
        restart: how often the run was restarted: keys of the store begin with it.
    """

    rank: int
    world_size: int
    local_rank: int
    address: str
    port: int
    served: bool
    restart: int = 0


def place(environment: Mapping[str, str] | None = None, rank: int = -1, world_size: int = -1) -> Place:
    """The place that the environment tells; what is given counts more.

    Raises:
        ValueError: neither torchrun nor srun nor mpirun started this process, or a variable is no number.

    >>> place({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODELIST": "gpu[07-08,12]"})
    Place(rank=3, world_size=4, local_rank=1, address='gpu07', port=29500, served=False, restart=0)
    >>> step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "812345", "SLURM_STEP_ID": "1"}
    >>> found = place({**step, "SLURM_NODELIST": "a[1-4]", "SLURM_STEP_NODELIST": "a3"})
    >>> found.address, found.port
    ('a3', 22346)
    >>> found = place({"PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_PORT": "1234"})
    >>> found.rank, found.world_size, found.local_rank, found.port
    (1, 2, 1, 1234)
    """
    env = os.environ if environment is None else environment
    found = next(((r, s, local) for _, r, s, local in LAUNCHERS if r in env and s in env), None)
    if found is None and (rank < 0 or world_size < 0):
        raise failure("init_process_group", "environment variable RANK expected, but not set",
                      hint="start the script with torchrun, srun, mpirun or `genesis launch -n 2 script.py`, or pass "
                           "rank and world_size", error=ValueError)
    numbers = [_number(env, name) for name in found] if found is not None else [rank, world_size, -1]
    rank = numbers[0] if rank < 0 else rank
    world_size = numbers[1] if world_size < 0 else world_size
    local = numbers[2] if numbers[2] >= 0 else rank
    nodes = env.get("SLURM_STEP_NODELIST") or env.get("SLURM_NODELIST", "")  # a step may have some of the job's alone
    address = env.get("MASTER_ADDR") or first_host(nodes) or "127.0.0.1"
    restarts = env.get("TORCHELASTIC_RESTART_COUNT", "0")
    return Place(rank, world_size, local, address, int(env.get("MASTER_PORT") or _port_of_step(env)),
                 env.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True", int(restarts))


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "-1")
    try:
        return int(text)
    except ValueError:
        raise failure("init_process_group", f"the environment variable {name} is {text!r}, not a number",
                      error=ValueError) from None


def _port_of_step(env: Mapping[str, str]) -> int:
    """The port where nothing says one: of each of Slurm's steps its own, as two jobs may share a host."""
    job, step = env.get("SLURM_JOB_ID", ""), env.get("SLURM_STEP_ID", "0")
    if not (job.isdigit() and step.isdigit()):
        return DEFAULT_PORT
    return STEPS_PORTS[0] + (int(job) + int(step)) % len(STEPS_PORTS)


def first_host(nodes: str) -> str:
    """The first host of a list as Slurm writes it.

    >>> first_host("a,b"), first_host("node[003-010,20]-x"), first_host("")
    ('a', 'node003-x', '')
    """
    found = re.match(r"([^\[,]*)(?:\[([^\],-]*)[^\]]*\])?([^,\[]*)", nodes)
    return "" if found is None else found[1] + (found[2] or "") + found[3]
