"""What a training run is told: tables of a TOML file, each a dataclass whose fields are checked by name and type."""

from __future__ import annotations

import json
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

Table = TypeVar("Table")


@dataclass(frozen=True)
class OptimizerConfig:
    """[optimizer]

    Attributes:
        name: "adamw"; or "muon" for the matrices of the blocks, and AdamW for all else.
        lr: AdamW's learning rate, the highest of the schedule.
        matrix_lr: Muon's.
        betas, eps: AdamW's.
        momentum: Muon's.
        weight_decay: of matrices; norms and biases have none.
    """

    name: Literal["adamw", "muon"] = "adamw"
    lr: float = 3e-4
    matrix_lr: float = 0.02
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    momentum: float = 0.95
    weight_decay: float = 0.1


@dataclass(frozen=True)
class ScheduleConfig:
    """[schedule]: a line up from 0, then down.

    Attributes:
        warmup: steps until the learning rate is reached.
        decay: how it falls behind that.
        final: what it falls to, as a fraction.
    """

    warmup: int = 0
    decay: Literal["cosine", "linear", "constant"] = "cosine"
    final: float = 0.1


@dataclass(frozen=True)
class EvaluationConfig:
    """[evaluation]

    Attributes:
        every: steps between two; 0 for none.
        batches: how many of the validation's batches are read; 0 for all.
    """

    every: int = 0
    batches: int = 20


@dataclass(frozen=True)
class SamplesConfig:
    """[samples]: what the model writes on the way.

    Attributes:
        every: steps between two; 0 for none.
        prompt: the text to continue.
        tokens: how many.
        temperature: 0 takes the likeliest.
    """

    every: int = 0
    prompt: str = "The"
    tokens: int = 64
    temperature: float = 0.8


@dataclass(frozen=True)
class CheckpointsConfig:
    """[checkpoints]

    Attributes:
        every: steps between two; one more is written when the run ends or is stopped.
        keep: how many are kept.
    """

    every: int = 1000
    keep: int = 3


@dataclass(frozen=True)
class LogConfig:
    """[log]

    Attributes:
        every: steps between two lines, and between two times that the program waits for the device.
        tensorboard: write events for it, if it is installed.
    """

    every: int = 10
    tensorboard: bool = True


@dataclass(frozen=True)
class RunConfig:
    """The part of a configuration that does not depend on what is trained.

    Attributes:
        out: the run's folder.
        steps: how many there are.
        seed: of the weights, the order of the data, dropout and samples.
        device: "cuda" or "cpu"; a GPU if there is one.
        precision: of products, "bfloat16" on a GPU and "float32" on the CPU by default; weights and the optimizer's
            state are float32. float16 scales the loss.
        batch: rows that go through the model at once.
        accumulate: batches of a step.
        clip: the largest norm of a step's gradients; 0 for any.
        compile: replay the step (`genesis.compile`).
        workers: processes that make batches; 0 makes them between steps.
    """

    out: str
    steps: int
    seed: int = 0
    device: str | None = None
    precision: Literal["float32", "bfloat16", "float16"] | None = None
    batch: int = 8
    accumulate: int = 1
    clip: float = 1.0
    compile: bool = True
    workers: int = 0
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    samples: SamplesConfig = field(default_factory=SamplesConfig)
    checkpoints: CheckpointsConfig = field(default_factory=CheckpointsConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        if not self.out:
            raise ValueError("out = '' is no folder")
        for name, value, least in (
                ("steps", self.steps, 1), ("batch", self.batch, 1), ("accumulate", self.accumulate, 1),
                ("clip", self.clip, 0), ("workers", self.workers, 0), ("schedule.warmup", self.schedule.warmup, 0),
                ("schedule.final", self.schedule.final, 0), ("evaluation.every", self.evaluation.every, 0),
                ("evaluation.batches", self.evaluation.batches, 0), ("samples.every", self.samples.every, 0),
                ("samples.tokens", self.samples.tokens, 1), ("samples.temperature", self.samples.temperature, 0),
                ("checkpoints.every", self.checkpoints.every, 1), ("checkpoints.keep", self.checkpoints.keep, 1),
                ("log.every", self.log.every, 1)):
            if not value >= least:  # so is NaN
                raise ValueError(f"{name} = {value} is out of range: it is at least {least}")

    def inputs(self) -> Mapping[str, str]:
        """Field → the file or folder that it names, which the run reads."""
        return {}


@dataclass(frozen=True)
class DataConfig:
    """[data]: folders that `genesis data` wrote.

    Attributes:
        train: what is learnt.
        validation: what the evaluation reads.
        context: tokens of a row.
        documents: keep those of a row apart with a mask. It costs speed: without it attention is the plain triangle.
    """

    train: str
    context: int
    validation: str | None = None
    documents: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """A whole file of `genesis train`.

    Attributes:
        data: see `DataConfig`.
        model: `folder` to go on with the model of one; or `family`, a model_type, and the fields of its config.json.
    """

    data: DataConfig
    model: Mapping[str, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.evaluation.every and self.data.validation is None:
            raise ValueError(f"evaluation.every = {self.evaluation.every} needs data.validation: what it evaluates on")

    def inputs(self) -> Mapping[str, str]:
        """The folders of tokens, and that of a model to go on with."""
        named = {"data.train": self.data.train, "data.validation": self.data.validation,
                 "model.folder": self.model.get("folder")}
        return {field: path for field, path in named.items() if path is not None}


INPUTS: Final = "inputs"
"""The name, beside the fields of a run's configuration, of the digests of what it reads."""

CHANGEABLE: Final = frozenset({INPUTS, "out", "steps", "device", "evaluation", "samples", "checkpoints", "log",
                               "workers"})
"""Fields that may be others when a run goes on."""


def read_config(path: Path) -> TrainConfig:
    """The configuration in a TOML file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no TOML, or a field is unknown, missing, or of another type or range.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from None
    try:
        return from_table(TrainConfig, table)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def from_table(kind: type[Table], table: Mapping[str, Any], where: str = "") -> Table:
    """A dataclass from a table of its fields.

    Raises:
        ValueError: a field is unknown, missing, or of another type.

    >>> from_table(ScheduleConfig, {"warmup": 10, "decay": "linear"})
    ScheduleConfig(warmup=10, decay='linear', final=0.1)
    >>> from_table(ScheduleConfig, {"warm_up": 10}, "schedule")
    Traceback (most recent call last):
    ValueError: [schedule] has no field 'warm_up'; did you mean 'warmup'?
    """
    named = f"[{where}]" if where else "the configuration"
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    for name in table:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise ValueError(f"{named} has no field {name!r}; "
                             + (f"did you mean {near[0]!r}?" if near else f"its fields are {', '.join(known)}"))
    hints = typing.get_type_hints(kind)
    values = {name: _checked(hints[name], value, f"{where}.{name}" if where else name) for name, value in table.items()}
    try:
        return kind(**values)
    except TypeError:
        missing = [f.name for f in fields(kind) if f.name not in table and _is_required(f)]  # type: ignore[arg-type]
        raise ValueError(f"{named} needs {' and '.join(map(repr, missing))}") from None


def _is_required(one: Any) -> bool:
    from dataclasses import MISSING
    return one.default is MISSING and one.default_factory is MISSING


def _checked(hint: Any, value: Any, name: str) -> Any:
    """The value as the type of its field."""
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is a table: [{name}]")
        return from_table(typing.cast(type, hint), value, name)
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value in options:
            return value
        raise ValueError(f"{name} = {value!r} is none of {', '.join(map(repr, options))}")
    if origin in (typing.Union, types.UnionType):
        return _checked(options[0], value, name)
    if origin is tuple:
        if not isinstance(value, (list, tuple)) or len(value) != len(options):
            raise ValueError(f"{name} = {value!r} is no list of {len(options)} numbers")
        return tuple(_checked(option, x, name) for option, x in zip(options, value, strict=True))
    if hint is float and type(value) is int:
        return float(value)
    wanted = Mapping if origin is not None else hint
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
        kinds = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", Mapping: "a table"}
        raise ValueError(f"{name} = {value!r} is not {kinds[wanted]}")
    return value


def as_table(config: RunConfig) -> dict[str, Any]:
    """The fields as JSON has them."""
    return {name: dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
            for name, value in asdict(config).items()}


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first field, among those that must stay, in which a run's configuration is not what it was. What the run
    reads is told by its content, wherever it lies.

    >>> difference({"seed": 1, "steps": 5}, {"seed": 2, "steps": 9})
    'seed was 1, is 2'
    """
    digests = before.get(INPUTS, {}), now.get(INPUTS, {})
    known = digests[0].keys() & digests[1].keys()
    for name in sorted(known):
        if digests[0][name] != digests[1][name]:
            return f"{name} has other content than it had"
    for name in sorted({*before, *now} - CHANGEABLE - known):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            for inner in sorted({*old, *new}):
                if old.get(inner) != new.get(inner) and f"{name}.{inner}" not in known:
                    return f"{name}.{inner} was {old.get(inner)!r}, is {new.get(inner)!r}"
        elif old != new:
            return f"{name} was {old!r}, is {new!r}"
    return None


def check_same(config: RunConfig, out: Path, begun: bool, inputs: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write the configuration into a run's folder, or compare it with the one that the run was begun with.

    The file is replaced whole: a kill at any moment leaves one that the run goes on with.

    Args:
        config: of now.
        out: the run's folder.
        begun: there are checkpoints to go on from.
        inputs: field → digest of what the run reads (`run_inputs`).

    Raises:
        ValueError: a field that must stay is another, or the file is damaged or not of a run.
    """
    from genesis.models.folder import read_json, write_json
    path, now = out / "config.json", json.loads(json.dumps({**as_table(config), INPUTS: dict(inputs)}))
    if path.is_file():
        before = read_json(path)
        if "out" not in before:
            raise ValueError(f"{path} is of something else, perhaps of a model: give another 'out'")
        if begun and (changed := difference(before, now)) is not None:
            raise ValueError(f"{out} holds a run of another configuration ({changed}): give another 'out', or remove "
                             "that folder")
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, now)
