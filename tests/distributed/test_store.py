"""The store: our client against our server and torch's, whose protocol it is; and how a process finds its place."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed

from genesis.distributed import DistNetworkError, DistStoreError, PrefixStore, TCPStore
from genesis.distributed.environment import place
from genesis.distributed.run import _wait_for_all
from genesis.distributed.store import StoreServer


@pytest.fixture(params=["ours", "torch's"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server."""
    server: Any
    if request.param == "ours":
        server = StoreServer(0)
        yield server.port
        server.close()
    else:
        server = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        yield server.port


def test_values_counts_and_waiting(port: int) -> None:
    one, two = TCPStore("127.0.0.1", port), PrefixStore("run", TCPStore("127.0.0.1", port))
    one.set("run/a", b"\0\xff")
    assert two.get("a") == b"\0\xff" and two.check(["a"]) and not two.check(["a", "b"])
    assert [one.add("n", 2), one.add("n", -5)] == [2, -3]
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(two.get("late")))
    thread.start()
    one.set("run/late", "x" * 100_000)
    thread.join(60)
    assert found == [b"x" * 100_000]
    assert one.delete_key("run/a") and not one.check(["run/a"])


def test_a_key_that_does_not_come(port: int) -> None:
    store = TCPStore("127.0.0.1", port, timeout=timedelta(seconds=0.2))
    with pytest.raises(DistStoreError, match="no value came for 'never'"):
        store.get("never")
    store.set("after", "works")
    assert store.get("after") == b"works"


def test_ranks_that_do_not_join_are_named(port: int) -> None:
    """All keys were told, those of ranks that had come, too."""
    store = PrefixStore("run", TCPStore("127.0.0.1", port, timeout=timedelta(seconds=0.3)))
    store.set("here/1", "4")
    with pytest.raises(DistStoreError, match=r"ranks 2, 3 of 4 did not join the run in time"):
        _wait_for_all(store, 0, 4)
    with pytest.raises(ValueError, match="rank 1 is one of 2 ranks, and rank 0 one of 4"):
        _wait_for_all(store, 1, 2)


def test_nobody_serves() -> None:
    with pytest.raises(DistNetworkError, match="nobody serves a store"):
        TCPStore("127.0.0.1", 1, timeout=timedelta(seconds=0.1))


@pytest.mark.parametrize("environment, expected", [
    ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "7",
      "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}, (1, 4, 1, "a", 7, True, 2)),
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
     (0, 2, 0, "127.0.0.1", 29500, False, 0)),
    ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MASTER_ADDR": "here"},
     (1, 4, 0, "here", 29500, False, 0)),
    ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODELIST": "n[1,3-4]"},
     (5, 8, 1, "n1", 29500, False, 0)),
])
def test_places(environment: dict[str, str], expected: tuple[Any, ...]) -> None:
    found = place(environment)
    assert (found.rank, found.world_size, found.local_rank, found.address, found.port, found.served,
            found.restart) == expected


def test_a_process_without_a_launcher_is_told_how_to_start() -> None:
    with pytest.raises(ValueError, match="genesis launch"):
        place({})
    with pytest.raises(ValueError, match="not a number"):
        place({"RANK": "x", "WORLD_SIZE": "2"})


@pytest.mark.sweep
def test_torchrun_serves_the_store(tmp_path: Path) -> None:
    """Its agent has MASTER_PORT: ranks are clients, and meet there.

    Each tells its sum in a file of its own: what two print at once is mixed.
    """
    script = tmp_path / "script.py"
    script.write_text("import sys\nfrom pathlib import Path\nimport genesis\nfrom genesis import distributed as dist\n"
                      "dist.init_process_group('gloo')\nx = genesis.ones(1)\ndist.all_reduce(x)\n"
                      "Path(sys.argv[1], f'rank_{dist.get_rank()}').write_text(str(x.item()))\n")
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                           str(script), str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"rank_{rank}").read_text() for rank in (0, 1)] == ["2.0", "2.0"]
