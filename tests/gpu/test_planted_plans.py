"""Plans on disk whose hash and key are right and whose content is not: each counts as missing, and is made again."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.engine.symbolic.plan_writer import write_form
from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.plan_cache import PlanCache
from genesis.runtime.plan_form import _STORED, CLASSES
from genesis.runtime.stored_form import FIELDS, Malformed, check_form
from tests.engine.symbolic.idle import Counting
from tests.gpu.test_plan_cache import Compiler, compiler, new_process, run  # noqa: F401 (a fixture)

JUNK: list[Any] = [None, True, -1, 1 << 80, 0.5, "x", [], {}, [[]], ["o", -1], ["o", 10**9], ["t", -1], ["k", 10**9],
                   ["d", "tpu"], ["()", None], ["()", ["o", -1]], ["?", 0], ["o"], ["o", "0"], ["o", True]]
"""What a field is not, or refers to nothing."""


def read(path: Path) -> tuple[str, dict[str, Any]]:
    line = path.read_bytes().split(b"\n")[1]
    found = json.loads(line)
    return found["key"], found["meta"]


def plant(path: Path, key: str, meta: Any) -> None:
    body = json.dumps({"key": key, "meta": meta}).encode() + b"\n"
    path.write_bytes(b"genesis-plan-1 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


@pytest.fixture
def planted(compiler: Compiler, tmp_path: Path) -> Iterator[tuple[PlanCache, Path, str, dict[str, Any]]]:  # noqa: F811
    """A cache with one plan: its file, its key and what it says."""
    run(7)
    path, = tmp_path.glob("*.plan")
    key, meta = read(path)
    yield PlanCache(tmp_path), path, key, meta


def test_the_plan_as_it_is_can_be_read(planted: Any) -> None:
    cache, path, key, meta = planted
    plant(path, key, meta)
    assert cache.get(key) is not None


@pytest.mark.parametrize("part", ["format", "entries", *_STORED])
def test_each_part_missing_or_something_else(planted: Any, part: str) -> None:
    cache, path, key, meta = planted
    wrong = [{name: value for name, value in meta.items() if name != part}]
    any_list = part == "fixed"  # what the plan was made for is in its key
    wrong += [{**meta, part: junk} for junk in JUNK if junk != meta[part] and not (any_list and isinstance(junk, list))]
    for form in wrong:
        plant(path, key, form)
        assert cache.get(key) is None, form.get(part)
        assert not path.exists(), "what cannot be used is removed"


def test_each_field_of_each_object(planted: Any) -> None:
    """Every field of every object is replaced by everything that it is not."""
    cache, path, key, meta = planted
    tried = 0
    for number, entry in enumerate(meta["objects"]):
        for position, value in enumerate(entry):
            for junk in JUNK:
                if same_kind(entry[0], position, value, junk):
                    continue
                form = copy.deepcopy(meta)
                form["objects"][number][position] = junk
                plant(path, key, form)
                assert cache.get(key) is None, (entry, position, junk)
                tried += 1
    assert tried > 500


def same_kind(cls: str, position: int, value: Any, junk: Any) -> bool:
    """Is the junk what the field may be? Texts are any, a tuple may be empty, and some fields may be None."""
    if isinstance(value, str) and position and cls != "Place":
        return isinstance(junk, str)
    if isinstance(value, bool):
        return isinstance(junk, bool)
    return junk is None and (cls, position) in (("Launch", 5), ("Plan", 11))


def test_each_entry_of_types(planted: Any) -> None:
    cache, path, key, meta = planted
    for number, entry in enumerate(meta["types"]):
        for position in range(len(entry)):
            for junk in JUNK:
                if (position == 3 and junk is True) or (position == 1 and junk == []):
                    continue
                form = copy.deepcopy(meta)
                form["types"][number][position] = junk
                plant(path, key, form)
                assert cache.get(key) is None, (entry, position, junk)


def test_places_outside_of_the_plans_memory(planted: Any) -> None:
    """A kernel would read or write whatever lies there."""
    cache, path, key, meta = planted
    for number, entry in enumerate(meta["objects"]):
        if entry[0] == "Place" and entry[1] in ("input", "output", "arena"):
            position, beyond = (3, 1 << 40) if entry[1] == "arena" else (2, 1000)
            form = copy.deepcopy(meta)
            form["objects"][number][position] = beyond
            plant(path, key, form)
            assert cache.get(key) is None
    form = copy.deepcopy(meta)
    form["objects"][-1][4] = ["()", 1000]
    plant(path, key, form)
    assert cache.get(key) is None


def test_objects_before_those_they_refer_to_and_too_few_or_many_fields(planted: Any) -> None:
    cache, path, key, meta = planted
    for objects in ([], meta["objects"][::-1], meta["objects"][1:], meta["objects"][:-1], [[]],
                    [*meta["objects"][:-1], meta["objects"][-1][:-1]],
                    [*meta["objects"][:-1], [*meta["objects"][-1], None]], [*meta["objects"], ["Call"]]):
        plant(path, key, {**meta, "objects": objects})
        assert cache.get(key) is None


def test_a_plan_under_another_plans_name(planted: Any) -> None:
    cache, path, key, _ = planted
    cache.store.path(cache.store.write("other", {}) and hashlib.sha256(b"other").hexdigest())
    other, = (file for file in path.parent.glob("*.plan") if file != path)
    other.write_bytes(path.read_bytes())
    assert cache.get("other") is None and cache.get(key) is not None


def test_the_program_runs_all_the_same(planted: Any) -> None:
    """With the plan, and then with its kernels, replaced by nonsense."""
    _, path, key, meta = planted
    _, first = run(7)
    for form in ({}, {**meta, "objects": []}, {**meta, "entries": ["0" * 64]}):
        plant(path, key, form)
        for template in path.parent.glob("*.template"):
            template.unlink()
        for expected in ("compiled", "disk"):
            new_process()
            origin, again = run(7)
            assert origin == expected
            np.testing.assert_array_equal(first, again)
    for kernel in path.parent.glob("*.kernel"):
        kernel_key, kernel_meta = read(kernel)
        KernelCache(path.parent).put(kernel_key, b"", {**kernel_meta, "num_warps": "four"})
    new_process()
    assert PlanCache(path.parent).get(key) is None


def test_every_class_of_a_form_has_its_fields_checked() -> None:
    assert FIELDS.keys() == CLASSES.keys()


def stored_product() -> dict[str, Any]:
    """The stored form of a product whose blocks the copy engine moves."""
    with Counting():
        x, w = (genesis.ones(4096, 4096, device="cuda", dtype=genesis.bfloat16) for _ in range(2))
        genesis.eval(x, w)
        genesis.eval(x @ w.T)
        found = engine.last_plan()
    assert found is not None
    stored = json.loads(json.dumps(write_form(found.plan, (), None, ())[0].as_json()))
    return {**stored, "entries": ["kernel"] * len(stored["entries"])}


def test_maps_of_matrices_are_read_and_checked() -> None:
    form = stored_product()
    assert check_form(form) == ["kernel"]
    number, found = next((i, x) for i, x in enumerate(form["objects"]) if x[0] == "MatrixMap")
    for field, wrong in [(2, ["()", 4097, 4096]), (2, ["()", 4096]), (3, 4097), (4, 1), (4, -1), (5, 3), (1, ["o", 99]),
                         (6, ["()", ["()", 2, 1]]), (6, None)]:
        planted = copy.deepcopy(form)
        planted["objects"][number] = [*found[:field], wrong, *found[field + 1:]]
        with pytest.raises(Malformed):
            check_form(planted)
