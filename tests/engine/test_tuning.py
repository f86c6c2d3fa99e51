"""`config.tune = "max"`: what was measured is kept, and decides later processes, as long as it can be trusted."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import genesis
from genesis import engine
from genesis.codegen.cuda.choice_table import Key, Row
from genesis.codegen.cuda.tuning import NotTimed, Trial
from genesis.engine import plans, tuning
from genesis.engine.backends import FakeCUDABackend
from genesis.engine.tuning import UserTable, table_of, user_rows
from genesis.runtime.collectives import GroupEntry, add_group, ranks, remove_group
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import Launch

OTHER = "64x64x128 warps=4 stages=3"
"""A tile that the model does not put first."""

TUNED = f"product {OTHER}, tuned (7.0 µs, 10.0 without)"


class Gpu(FakeCUDABackend):
    """A pretended GPU, to which `OTHER` is fastest; `seen` are the trials that it timed."""

    def __init__(self, time: Callable[[Trial], float] | None = None):
        super().__init__(HostDriver(memory_bytes=16 << 20), self.time)
        self.asked = time
        self.seen: list[Trial] = []

    def time(self, trial: Trial) -> float:
        """The test's function, or one for which `OTHER` is fastest."""
        self.seen.append(trial)
        if self.asked is not None:
            return self.asked(trial)
        return 7.0 if trial.taken.candidate.name == OTHER else 10.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(genesis.config, "tune", "max")
    return tmp_path / "cache"


@contextmanager
def process(time: Callable[[Trial], float] | None = None) -> Iterator[Gpu]:
    """A GPU, and nothing of tables in memory, as a new process begins."""
    tuning._table_in.cache_clear()
    tuning._tell_ranks.cache_clear()
    with Gpu(time) as gpu:
        yield gpu


def product(rows: int = 32) -> tuple[Launch, str]:
    """Compute a product: its launch, and what its kernel was made with."""
    x = genesis.ones(rows, 96, device="cuda", dtype=genesis.bfloat16)
    w = genesis.ones(96, 128, device="cuda", dtype=genesis.bfloat16)
    genesis.eval(x, w)
    y = x @ w
    genesis.eval(y)
    plan = engine.last_plan()
    assert plan is not None and (y.float().cpu() == 96).all(), "sums of 96 ones are exact"
    launch, = plan.plan.steps
    assert isinstance(launch, Launch)
    made, = launch.choices
    return launch, made


def by_the_model(made: str) -> bool:
    """Did the model say so?"""
    return made.endswith(", by the model")


def files(folder: Path) -> list[Path]:
    """The tables there."""
    return sorted(folder.glob("*.tuned"))


def test_a_second_process_takes_what_the_first_has_measured(folder: Path) -> None:
    with process() as gpu:
        first, made = product()
        assert made == TUNED and len(gpu.seen) > 1
        digest = gpu.decided_by
    table, = files(folder)
    assert f"| {OTHER} | 7.00 | 10.00" in table.read_text().splitlines()[-1], "as people read it"
    with process(lambda trial: 1 / 0) as gpu:
        second, made = product()
        assert made == TUNED and not gpu.seen
        assert second.kernel.source == first.kernel.source and gpu.decided_by == digest


def test_by_default_no_table_of_the_users_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with process():
        product()
    monkeypatch.setattr(genesis.config, "tune", "model")
    with process() as gpu:
        assert by_the_model(product()[1]) and not gpu.seen and gpu.decided_by == ""


def test_plans_of_other_tables_have_other_names() -> None:
    """The digest of the table is part of the key of plans on disk."""
    with process() as gpu:
        before = gpu.decided_by
        product()
        assert gpu.decided_by != before
        user_rows(gpu.gpu).add(Row(Key("rows", "rule=1x1"), "2x1 warps=1"))  # type: ignore[union-attr]
        after = gpu.decided_by
        assert after != before

        class Member:
            numbers, fixed = (1,), ()
        named = plans._name((), Member(), genesis.device("cuda:0"))  # type: ignore[arg-type]
        assert after in named


def test_a_setting_is_part_of_a_programs_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with process() as gpu:
        product()
        monkeypatch.setattr(genesis.config, "tune", "model")
        assert by_the_model(product()[1])
        monkeypatch.setattr(genesis.config, "tune", "max")
        count = len(gpu.seen)
        assert product()[1] == TUNED and len(gpu.seen) == count


def test_sizes_of_one_class_are_measured_once() -> None:
    with process() as gpu:
        product(60)
        count = len(gpu.seen)
        product(62)
        assert len(gpu.seen) == count
        product(600)
        assert len(gpu.seen) > count


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What Genesis' logger is told (pytest's own capturing is off, see pyproject.toml)."""
    found: list[str] = []
    handler, logger = logging.Handler(), logging.getLogger("genesis")
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def test_without_room_for_the_operands_the_models_choice_stays(folder: Path, logged: list[str]) -> None:
    def time(trial: Trial) -> float:
        raise NotTimed("there is no memory for its operands", memory=True)
    with process(time) as gpu:
        assert by_the_model(product()[1]) and len(gpu.seen) == 1
    assert not files(folder) and any("no memory for its operands" in line for line in logged)


@pytest.mark.parametrize("damage", [lambda text: text[:-20], lambda text: text.replace("7.00", "6.00"),
                                    lambda text: ""], ids=["cut off", "changed", "empty"])
def test_a_damaged_table_is_ignored_with_a_warning_and_made_anew(folder: Path, damage: Callable[[str], str]) -> None:
    with process():
        product()
    table, = files(folder)
    table.write_text(damage(table.read_text()))
    with pytest.warns(RuntimeWarning, match=r"the table of measured choices .* is ignored: it is damaged"), \
            process() as gpu:
        assert product()[1] == TUNED and gpu.seen
    with warnings.catch_warnings(), process() as gpu:
        warnings.filterwarnings("error", "config.tune")
        assert product()[1] == TUNED and not gpu.seen


def test_a_table_with_a_line_that_is_none_is_ignored(folder: Path) -> None:
    with process() as gpu:
        table = table_of(gpu.gpu)
        table._store.write(table._key, {}, b"[Genesis host driver]\nproduct | and nothing else\n")
        with pytest.warns(RuntimeWarning, match="line 2 is no row"):
            assert not len(UserTable(folder, gpu.gpu).rows)


def test_rows_of_two_processes_are_kept_both_and_the_first_about_a_problem_stays(folder: Path) -> None:
    with process() as gpu:
        first, second = UserTable(folder, gpu.gpu), UserTable(folder, gpu.gpu)
        one, other = Key("product", "rows=1"), Key("product", "rows=2")
        first.keep([Row(one, "64x64")])
        second.keep([Row(one, "32x32"), Row(other, "16x16")])
        assert [(row.key, row.candidate) for row in UserTable(folder, gpu.gpu).rows] == [
            (one, "64x64"), (other, "16x16")]
        first.refresh()
        assert other in first.rows


def test_tables_of_other_gpus_and_versions_are_other_tables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genesis.codegen.cuda.gpu_model import H200, MODELS
    UserTable(folder, H200).keep([Row(Key("product", "rows=1"), "64x64")])
    assert len(UserTable(folder, H200).rows) == 1 and not len(UserTable(folder, MODELS["h100"]).rows)
    monkeypatch.setattr(tuning, "version", lambda package: "0.0")
    assert not len(UserTable(folder, H200).rows)


def test_a_directory_that_cannot_be_used_is_told(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="cannot be written in .* can be written to by others"), process() as gpu:
        assert product()[1] == TUNED, "this process has measured it all the same"
        assert gpu.seen


def test_ranks_of_a_job_choose_by_what_is_equal_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with process():
        product()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.warns(RuntimeWarning, match=r"measures nothing in a job of 8 ranks"), process() as gpu:
        assert by_the_model(product()[1]) and not gpu.seen and gpu.decided_by == ""


def test_a_jobs_ranks_are_those_of_its_groups_or_of_who_launched_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks() == 1
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert ranks() == 1, "without a rank it is no launcher's"
    monkeypatch.setenv("RANK", "1")
    assert ranks() == 4
    add_group("some", GroupEntry(lambda device_type: None, range(3), 1.0))  # type: ignore[arg-type,return-value]
    try:
        assert ranks() == 3
    finally:
        remove_group("some")


def test_plans_made_while_times_decide_are_written_when_the_table_is_whole(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names hold all of the table, which the next plan may add to: a second process finds them all."""
    monkeypatch.setattr(plans, "stored_plans", lambda: Kept())
    named: list[str] = []

    class Kept:
        def has(self, name: str) -> bool:
            return False

        def get(self, name: str) -> None:
            return None

        def put(self, name: str, form: object) -> None:
            named.append(name)
    with process() as gpu:
        monkeypatch.setattr(gpu, "compile", lambda sources: [
            image.__class__(image.name, b"", image.num_warps, 0, image.source, "entry")
            for image in FakeCUDABackend.compile(gpu, sources)])
        product(60)
        product(600)
        assert not named
        plans._save_all()
        assert len(named) >= 2 and all(gpu.decided_by in name for name in named)
