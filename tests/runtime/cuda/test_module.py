"""Kernels are loaded once, and those that run beside others leave them shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from genesis.runtime.cuda.module import load_together
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.overlap import EARLY
from genesis.runtime.plan import TILES, KernelImage, Launch

HEAD = "import triton\nfrom triton.language.extra import cuda\n\n\n@triton.jit\ndef g_ask(address):\n    pass\n\n\n"
KERNEL = "@triton.jit\ndef kernel(x):\n"
WAIT, RELEASE, ASK = "    cuda.gdc_wait()\n", "    cuda.gdc_launch_dependents()\n", "    g_ask(x)\n"
PLAIN = KernelImage("kernel", b"", 4, 0, KERNEL + WAIT + RELEASE)


@pytest.mark.parametrize(("image", "beside"), [
    (PLAIN, False),
    (replace(PLAIN, source=KERNEL + "    pass\n"), False),
    (replace(PLAIN, source=KERNEL + RELEASE + WAIT), True),
    (replace(PLAIN, source=f"{KERNEL}    {EARLY}\n{WAIT}{RELEASE}"), True),
    (replace(PLAIN, source=HEAD + KERNEL + ASK + WAIT + RELEASE), False),
    (replace(PLAIN, source=HEAD + KERNEL + ASK + WAIT + RELEASE, shared_bytes=TILES), True),
    (replace(PLAIN, source=HEAD + KERNEL + WAIT + RELEASE + ASK, shared_bytes=TILES), False),
], ids=["waits", "waits for nothing", "lets the next begin", "reads early", "a norm that asks", "attention that asks",
        "tiles without asking"])
def test_kernels_that_run_beside_others(image: KernelImage, beside: bool) -> None:
    assert image.shares_multiprocessors is beside


def test_they_leave_the_others_shared_memory(host_driver: HostDriver) -> None:
    """CUDA would give a kernel without shared memory a multiprocessor's caches, and the next one would wait for it.
    That was measured where some read early."""
    early = replace(PLAIN, source=f"{KERNEL}    {EARLY}\n{WAIT}{RELEASE}")
    small = replace(PLAIN, source=KERNEL + RELEASE + WAIT)
    def together(*images: KernelImage, moves: int = 6 << 20) -> Mapping[int, Any]:
        return load_together([Launch(image, (), (1, 1, 1), moves=moves) for image in images], 0)
    found = together(PLAIN, small, PLAIN, small)
    assert len(found) == host_driver.calls["load"] == 2 and not host_driver.calls["prefer_shared_memory"]
    together(PLAIN, small, early, early, moves=80 << 20)
    assert host_driver.calls["load"] == 3 and not host_driver.calls["prefer_shared_memory"]  # long
    assert together(PLAIN, small, early, early).items() >= found.items()
    assert host_driver.calls["load"] == 3 and host_driver.calls["prefer_shared_memory"] == 2
