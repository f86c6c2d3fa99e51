"""Plans on disk, so that a script that ran before starts without passes, code generation and Triton.

An entry holds a plan's form (`plan_form.py`) for one program: structure, sizes, settings. Its kernels are entries of
the kernel cache beside it. The name of an entry is the sha256 of all that the plan depends on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from genesis.runtime.entries import Entries, default_directory, name_of
from genesis.runtime.kernel_cache import KernelCache
from genesis.runtime.plan import KernelImage, Plan
from genesis.runtime.plan_form import PlanForm, from_json

FORMAT: Final = 1


class PlanCache:
    """A directory of plans that only its owner can read or write.

    Args:
        directory: as of `KernelCache`, whose entries the plans refer to.
    """

    def __init__(self, directory: str | Path | None = None):
        place = Path(directory) if directory is not None else default_directory()
        self.entries = Entries(place, "plan", FORMAT)
        self._kernels = KernelCache(place)
        self._images: dict[str, KernelImage] = {}  # of plans that were read: other sizes have the same kernels

    def get(self, key: str) -> Plan | None:
        """The plan of a key; None if there is none, or it or one of its kernels is damaged or missing.

        An entry that cannot be used is removed: the plan is then made and written anew.
        """
        found = self.entries.read(name_of(key))
        if found is None:
            return None
        form = from_json(found.meta, self._image)
        if form is None:
            self.entries.path(name_of(key)).unlink(missing_ok=True)
            return None
        return form.fill(form.evaluate({}))

    def has(self, key: str) -> bool:
        """Is there an entry, whatever is in it?"""
        return self.entries.path(name_of(key)).exists()

    def put(self, key: str, form: PlanForm) -> bool:
        """Write a form in which nothing is open; False if that failed, or a kernel is in no cache."""
        return all(form.entries) and self.entries.write(name_of(key), form.as_json())

    def _image(self, entry: str) -> KernelImage | None:
        image = self._images.get(entry)
        if image is not None:
            return image
        found = self._kernels.named(entry)
        if found is None:
            return None
        meta = found.meta
        try:
            image = KernelImage(meta["name"], found.cubin, meta["num_warps"], meta["shared_bytes"], meta["source"],
                                entry)
        except KeyError:  # written by a version that kept less
            return None
        self._images[entry] = image
        return image
