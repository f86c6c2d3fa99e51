"""The record of a training run: the data that the progress lines, metrics.jsonl and report.html show."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType


@dataclass(frozen=True)
class Settings:
    """The settings that the user chose; one field per flag of `genesis demo`."""

    device: str = "cpu"
    steps: int = 600
    layers: int = 4
    dim: int = 128
    heads: int = 4
    batch: int = 16
    context: int = 64
    lr: float = 2e-3
    compile: bool = False
    seed: int = 0
    out: str = "runs/demo"


@dataclass(frozen=True)
class TrainingStep:
    """One training step. `elapsed` is seconds since training began; loss in nats per byte."""

    step: int
    loss: float
    lr: float
    tokens_per_s: float
    elapsed: float


@dataclass(frozen=True)
class Bars:
    """The losses that the model has to beat, in nats per byte, on the validation split.

    Attributes:
        entropy: of its own bigrams: no bigram model can be better. This is the bar.
        fitted: loss of a bigram model that was fitted to the training split.
    """

    entropy: float
    fitted: float


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes:
        settings: what was run.
        parameters: how many numbers the model learns.
        corpus: (name, value) facts about the text.
        steps: every training step.
        validations: (step, loss) along the way and at the end.
        bars: what had to be beaten.
        prompt, sample: what the model was given, and what it wrote.
        timings: (what, seconds), in the order in which it happened.
    """

    settings: Settings
    parameters: int
    corpus: tuple[tuple[str, str], ...]
    steps: tuple[TrainingStep, ...]
    validations: tuple[tuple[int, float], ...]
    bars: Bars
    prompt: str
    sample: str
    timings: tuple[tuple[str, float], ...]

    @property
    def validation_loss(self) -> float:
        """The last validation loss, in nats per byte."""
        return self.validations[-1][1]

    @property
    def passed(self) -> bool:
        """Whether the loss is below the bar. One that is not a number is not."""
        return self.validation_loss < self.bars.entropy


class MetricsFile:
    """metrics.jsonl: one JSON object a step, each on disk as soon as it is known."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")

    def write(self, step: TrainingStep) -> None:
        """Add a step. JSON has no NaN: a number that is none becomes null."""
        row = {name: None if isinstance(value, float) and not math.isfinite(value) else value
               for name, value in asdict(step).items()}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._file.close()
