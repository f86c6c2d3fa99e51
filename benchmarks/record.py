"""What a benchmark found, as a JSON file that says when, on what and how it was measured.

    add_out(parser)                                   # --out [FOLDER]
    if options.out:
        write(options.out, "attention", results=found)
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results"
"""Where the committed results are."""

PACKAGES: Final = ("torch", "triton", "numpy")


def add_out(parser: argparse.ArgumentParser) -> None:
    """The option to write results: to the committed ones, unless it names another folder."""
    parser.add_argument("--out", type=Path, nargs="?", const=RESULTS, metavar="FOLDER",
                        help="write the results to a file in this folder (without a name: benchmarks/results)")


def on_device(device: str) -> None:
    """Let tensors that name no device be made there by both libraries, and torch's products keep float32's bits.

    torch's own `set_default_device` sends each of its calls through Python, which takes it up to twice as long."""
    if device == "cpu":
        return
    import torch

    import genesis
    torch.backends.cudnn.allow_tf32 = False
    torch.set_default_tensor_type(torch.cuda.FloatTensor)
    genesis.set_default_device(device)


def write(folder: Path, name: str, **results: Any) -> Path:
    """Write `name`.json with the results behind where they come from; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**origin(), **results}, indent=1) + "\n", encoding="utf-8")
    return path


def origin() -> dict[str, Any]:
    """Date, command, versions and hardware of this run. The command has no `--out`: the file is there."""
    found = {"date": time.strftime("%Y-%m-%d"), "command": _command(sys.argv), "python": platform.python_version()}
    return {**found, **{name: _version(name) for name in PACKAGES}, "gpu": _gpu(), "cpus": os.cpu_count(),
            "processor": _processor()}


def _command(words: list[str]) -> str:
    """The words of a command line as one would type them at the root of the repository.

    >>> _command(["/tmp/x/benchmarks/bars.py", "--match", "softmax,sum ", "--out", "/tmp/there"])
    "python benchmarks/bars.py --match 'softmax,sum '"
    """
    rest = words[1:]
    if "--out" in rest:
        at = rest.index("--out")
        has_value = at + 1 < len(rest) and not rest[at + 1].startswith("-")
        rest = rest[:at] + rest[at + 1 + has_value:]
    return shlex.join(["python", f"benchmarks/{Path(words[0]).name}", *rest])


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu() -> str | None:
    """Name and driver, None where there is no GPU."""
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    """The CPU's name, as Linux gives it; elsewhere as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
