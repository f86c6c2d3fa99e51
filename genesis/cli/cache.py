"""Compiled kernels and plans on disk: what there is, how much, and how to be rid of it.

Everything here can be removed at any time: it is compiled again when it is wanted. `GENESIS_CACHE_DIR` says where
the cache is, GENESIS_PLAN_CACHE=0 keeps plans out of it. Tables of measured choices (`genesis tune`) are beside them.

    genesis cache
    genesis cache list
    genesis cache clear --plans
    genesis cache clear --tuned
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

HELP = "show or clear the compiled kernels and plans on disk"
KINDS = {"kernel": "kernels", "plan": "plans", "template": "plans", "table": "tuned"}
"""What is kept → the flag that asks for it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("action", nargs="?", choices=("size", "list", "clear"), default="size",
                        help="size: how much there is (default); list: every entry, the newest first; clear: remove it")
    parser.add_argument("--kernels", action="store_true", help="kernels only")
    parser.add_argument("--plans", action="store_true", help="plans only")
    parser.add_argument("--tuned", action="store_true", help="tables of measured choices only")


def run(arguments: argparse.Namespace) -> int:
    """Print or clear. 0, or 1 for a directory that is not used."""
    from genesis.engine.tuning import tables
    from genesis.runtime.cuda.kernel_cache import KernelCache
    from genesis.runtime.plan_cache import PlanCache
    stores = {"kernel": KernelCache().store, "plan": PlanCache().store, "template": PlanCache().templates,
              "table": tables()}
    asked = [kind for kind, flag in KINDS.items() if getattr(arguments, flag)] or [
        kind for kind in KINDS if kind not in ("template", "table") or any(stores[kind].files())]
    unused = stores["kernel"].why_unused()
    if unused is not None:
        print(f"not used: {unused}\n  try: look at what is in it, then `chmod go-w` it or remove it; or set "
              "GENESIS_CACHE_DIR")
        return 1
    files = {kind: list(stores[kind].files()) for kind in asked}
    if arguments.action == "list":
        for row in _rows([(kind, file) for kind in asked for file in files[kind]]):
            print(row)
    if arguments.action == "clear":
        removed = {kind: stores[kind].clear() for kind in asked}
        print(f"{stores['kernel'].directory}: removed {_words(removed)}")
    else:
        total = sum(file.stat().st_size for kind in asked for file in files[kind])
        counts = {kind: len(files[kind]) for kind in asked}
        print(f"{stores['kernel'].directory}: {_words(counts)}, {total / 1e6:.1f} MB")
    return 0


def _words(counts: dict[str, int]) -> str:
    return " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items())


def _rows(files: Sequence[tuple[str, Path]]) -> list[str]:
    """A line for each entry, the newest first: when, its size, what it is."""
    dated = sorted(((file.stat(), kind, file) for kind, file in files), key=lambda row: -row[0].st_mtime)
    return [f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(stat.st_mtime))} {stat.st_size / 1e3:9.1f} KB  "
            f"{kind:6} {file.stem[:12]}  {_what(kind, file)}" for stat, kind, file in dated]


def _what(kind: str, file: Path) -> str:
    """A kernel's name, how many launches a plan has, and for which sizes a template is; or what a table is about."""
    from genesis.engine.tuning import tables
    from genesis.runtime.cuda.kernel_cache import KernelCache
    from genesis.runtime.plan_cache import PlanCache
    stores = {"kernel": KernelCache(file.parent).store, "plan": PlanCache(file.parent).store,
              "template": PlanCache(file.parent).templates, "table": tables(file.parent)}
    found = stores[kind].read(file.stem)
    if found is None:
        return "damaged, or of another version"
    if kind == "kernel":
        return str(found.meta.get("name", "?"))
    if kind == "table":
        return f"measured choices of {found.meta.get('gpu', '?')}"
    form = found.meta.get("form", found.meta)
    launches = sum(entry[0] == "Launch" for entry in form.get("objects", ()))
    sizes = ", ".join(f"{name} from {kind['least']} to {kind['most']}"
                      for name, kind in found.meta.get("classes", {}).items())
    ahead = ", compiled in the background" if found.meta.get("background") else ""
    return f"{launches} launches of {len(form.get('entries', ()))} kernels{' for ' if sizes else ''}{sizes}{ahead}"
