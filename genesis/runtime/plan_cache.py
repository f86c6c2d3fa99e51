"""Plans on disk, so that a script that ran before starts without passes, code generation and Triton.

An entry holds a plan's form (`plan_form.py`) for one program: structure, sizes, settings. Its kernels are entries of
the kernel cache beside it. The name of an entry is the sha256 of all that the plan depends on. A template's entry holds
what plans of other sizes are filled in from; its name has the classes of the sizes in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.disk_store import DiskStore, default_directory
from genesis.runtime.plan import KernelImage, Plan
from genesis.runtime.plan_form import PlanForm, from_json
from genesis.runtime.stored_form import Malformed, Stored

Template = TypeVar("Template")
Images = Callable[[str], KernelImage | None]
"""Name of an entry of the kernel cache → kernel."""

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
        self.templates = DiskStore(place, "template", FORMAT)
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

    def get_template(self, key: str, made: Callable[[Stored, Images], Template | None]) -> Template | None:
        """The template of a key, which `made` makes of what the file says and of kernels; None as of `get`."""
        found = self.templates.get(key)
        if found is None:
            return None
        try:
            template = made(found.meta, self._image)
        except Malformed:
            template = None
        if template is None:
            self.templates.remove(key)
        return template

    def put_template(self, key: str, entries: Sequence[str], stored: Stored) -> bool:
        """Write what a file says of a template with these kernels; returns False as `put` does."""
        return all(entries) and self.templates.write(key, stored)

    def _image(self, entry: str) -> KernelImage | None:
        image = self._images.get(entry)
        if image is None:
            found = self._kernels.named(entry)
            image = None if found is None else found.image(entry)
            if image is not None:
                self._images[entry] = image
        return image
