"""Plans on disk, so that a script that ran before starts without passes, code generation and Triton.

An entry holds a plan's form (`plan_form.py`) for one program: structure, sizes, settings. Its kernels are entries of
the kernel cache beside it. The name of an entry is the sha256 of all that the plan depends on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.disk_store import DiskStore, default_directory
from genesis.runtime.plan import KernelImage, Plan
from genesis.runtime.plan_form import PlanForm, from_json
from genesis.runtime.stored_form import Malformed

FORMAT: Final = 1
"""Version of the entries; it grows when one of an earlier version would be read wrongly."""


class PlanCache:
    """A directory of plans that nobody but its owner can write to.

    Args:
        directory: that of the `KernelCache` whose entries the plans refer to.
    """

    def __init__(self, directory: str | Path | None = None):
        place = Path(directory) if directory is not None else default_directory()
        self.store = DiskStore(place, "plan", FORMAT)
        self._kernels = KernelCache(place)
        self._images: dict[str, KernelImage] = {}  # by entry: plans of other sizes have the same kernels

    def get(self, key: str) -> Plan | None:
        """The plan of a key; None if there is none, or it or one of its kernels is damaged or missing.

        An entry that cannot be used is removed: the plan is then made and written anew.
        """
        found = self.store.get(key)
        if found is None:
            return None
        try:
            form = from_json(found.meta, self._image)
            plan = None if form is None else form.fill(form.evaluate({}))
        except Malformed:
            plan = None
        if plan is None:
            self.store.remove(key)
        return plan

    def has(self, key: str) -> bool:
        """Whether there is an entry for the key, whatever is in it."""
        return self.store.has(key)

    def put(self, key: str, form: PlanForm) -> bool:
        """Write a form without open sizes; returns False if that failed, or if a kernel is in no cache."""
        return all(form.entries) and self.store.write(key, form.as_json())

    def _image(self, entry: str) -> KernelImage | None:
        image = self._images.get(entry)
        if image is None:
            found = self._kernels.named(entry)
            image = None if found is None else found.image(entry)
            if image is not None:
                self._images[entry] = image
        return image
