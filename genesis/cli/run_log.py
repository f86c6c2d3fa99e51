"""What a training run tells: a line every so many steps, metrics.jsonl, TensorBoard's events, a bar on a terminal.

Losses and norms stay on the device until a line is due: reading one waits for its step.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import genesis
from genesis import Tensor
from genesis.cli.language import perplexity
from genesis.cli.progress import LiveProgress
from genesis.cli.record import TrainingStep
from genesis.cli.run_config import LogConfig, RunConfig
from genesis.models import CausalLM

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Work:
    """What a step does.

    Attributes:
        tokens: that go in.
        flops: floating-point operations of its products.
        peak_flops: of the device, a second; 0 where it is not known.
    """

    tokens: int
    flops: float
    peak_flops: float


def work_of(model: CausalLM, context: int, config: RunConfig) -> Work:
    """The work of a step on rows of `context` tokens.

    A weight takes two operations a token forward, two for the gradient of its input, and two for its own if it is
    learnt; attention takes 12 · layers · width · context (Chowdhery et al. 2022), of which a causal one does half. Of
    experts those count that a token goes through.
    """
    spec, tokens = model.spec, config.batch * config.accumulate * context
    weights = [p for p in model.parameters() if p.ndim >= 2]
    looked_up = (0 if spec.tied else spec.vocab_size * spec.dim) + spec.position_table * spec.dim
    passed_by = sum(3 * spec.dim * part.hidden * (part.count - part.chosen) for part in spec.experts if part)
    held = sum(p.numel() for p in weights) - looked_up - passed_by
    learnt = min(held, sum(p.numel() for p in weights if p.requires_grad))
    attention = 6 * spec.layers * spec.heads * spec.head_dim * context
    peak = peak_flops(genesis.device(config.device or "cpu"), config.precision)
    return Work(tokens, tokens * (4.0 * held + 2.0 * learnt + attention), peak)


class RunLog:
    """The log of a run's part from one step on; a context manager.

    Args:
        folder: of the run.
        config: how often, and where to.
        steps: of the whole run.
        start: the step that the part begins behind: later rows of an earlier part are dropped.
        work: of each step.
        device: whose memory is told.
    """

    def __init__(self, folder: Path, config: LogConfig, steps: int, start: int, work: Work, device: str | None):
        folder.mkdir(parents=True, exist_ok=True)
        self._every, self._steps, self._work = config.every, steps, work
        self._device = genesis.device(device or "cpu")
        keep_rows(folder / METRICS, start)
        self._file = (folder / METRICS).open("a", encoding="utf-8")
        self._events = events(folder / "tensorboard", start) if config.tensorboard else None
        self._bar = LiveProgress(steps) if sys.stdout.isatty() else None
        self._pending: list[tuple[int, float, Tensor, Tensor]] = []
        self._began = self._last = time.perf_counter()
        self._first: tuple[int, float] | None = None  # behind the first reading, whose steps were compiled

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*error)
        self._file.close()
        if self._events is not None:
            self._events(None, {})

    def step(self, step: int, loss: Tensor, norm: Tensor, lr: float) -> None:
        """A step was made. Its loss and norm are read when a line is due."""
        self._pending.append((step, lr, loss, norm))
        if step % self._every == 0 or step == self._steps or self._first is None:
            self.flush()

    def flush(self) -> None:
        """Read and write what is pending."""
        if not self._pending:
            return
        values = genesis.stack([x.float() for _, _, *both in self._pending for x in both]).tolist()
        now = time.perf_counter()
        speed = len(self._pending) * self._work.tokens / (now - self._last)
        share = speed / self._work.tokens * self._work.flops / self._work.peak_flops if self._work.peak_flops else None
        most_held = memory(self._device)
        for number, (step, lr, *_) in enumerate(self._pending):
            row = {"step": step, "loss": values[2 * number], "grad_norm": values[2 * number + 1], "lr": lr,
                   "tokens_per_s": speed, "mfu": share, "memory": most_held, "elapsed": now - self._began}
            self._write(row)
        self._first = self._first or (step, now)
        done, since = step - self._first[0], now - self._first[1]
        left = since / done * (self._steps - step) if done else float("nan")
        self._show(row, left)
        self._pending.clear()
        self._last = time.perf_counter()

    def _show(self, row: dict[str, Any], left: float) -> None:
        self.note(line(row, self._steps, left))
        if self._bar is not None:
            self._bar.step(TrainingStep(row["step"], row["loss"], row["lr"], row["tokens_per_s"], row["elapsed"]))

    def validation(self, step: int, loss: float) -> None:
        """The loss of the validation after a step."""
        self.flush()
        self._write({"step": step, "validation_loss": loss})
        self.note(f"step {step:>{len(str(self._steps))}}/{self._steps}  validation loss {loss:.4f}  "
                  f"perplexity {perplexity(loss)}")
        self._last = time.perf_counter()

    def sample(self, step: int, prompt: str, text: str) -> None:
        """What the model wrote after a step."""
        self.flush()
        self._write({"step": step, "sample": prompt + text})
        self.note(f"step {step}: {prompt}|{text}")
        self._last = time.perf_counter()

    def note(self, text: str) -> None:
        """Print a line."""
        if self._bar is not None:
            self._bar.note(text)
        else:
            print(text, flush=True)

    def _write(self, row: dict[str, Any]) -> None:
        """A row is in the file when this returns. JSON has no NaN: a number that is none becomes null."""
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        self._file.write(json.dumps(plain) + "\n")
        self._file.flush()
        if self._events is not None:
            self._events(row["step"], {k: v for k, v in row.items() if k != "step" and isinstance(v, (int, float))})


def line(row: dict[str, Any], steps: int, left: float) -> str:
    """A step as people read it.

    >>> row = {"step": 20, "loss": 3.14159, "grad_norm": 0.5, "lr": 3e-4, "tokens_per_s": 123456.0, "mfu": 0.456,
    ...        "memory": 9.8e9}
    >>> line(row, 100, 3725.0)
    'step  20/100  loss 3.1416  norm 0.500  lr 3.00e-04  123,456 tokens/s  mfu 45.6%  9.8 GB  eta 1:02:05'
    """
    share = f"  mfu {row['mfu']:.1%}" if row["mfu"] is not None else ""
    eta = "" if left != left else f"  eta {int(left) // 3600}:{int(left) // 60 % 60:02d}:{int(left) % 60:02d}"
    return (f"step {row['step']:>{len(str(steps))}}/{steps}  loss {row['loss']:.4f}  norm {row['grad_norm']:.3f}  "
            f"lr {row['lr']:.2e}  {row['tokens_per_s']:,.0f} tokens/s{share}  {row['memory'] / 1e9:.1f} GB{eta}")


def memory(device: genesis.device) -> int:
    """Bytes that were held at most: by tensors on a GPU, by the process on the CPU."""
    if device.type == "cuda":
        return int(genesis.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak_flops(device: genesis.device, precision: str | None) -> float:
    """Operations a second of a GPU's matrix products at this precision at most; 0 for other devices."""
    if device.type != "cuda":
        return 0.0
    from genesis.codegen.cuda.gpu_model import model_of
    properties = genesis.cuda.get_device_properties(device)
    model = model_of(properties)
    half = 0.5 if precision == "float32" else 1.0  # TensorFloat-32
    return half * model.dot_flops * model.multiprocessors * properties.clock_rate * 1e3


class SilentLog(RunLog):
    """The log of a rank that tells nothing."""

    def __init__(self, folder: Path, config: LogConfig, steps: int, start: int, work: Work, device: str | None):
        """Nothing is opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is closed."""

    def step(self, step: int, loss: Tensor, norm: Tensor, lr: float) -> None:
        """A step was made."""

    def flush(self) -> None:
        """There is nothing to read."""

    def validation(self, step: int, loss: float) -> None:
        """Another rank tells it."""

    def sample(self, step: int, prompt: str, text: str) -> None:
        """Another rank tells it."""


def keep_rows(path: Path, last: int) -> None:
    """Drop the rows of steps behind `last`, and one that was not written to its end: the steps are made again."""
    if not path.is_file():
        return
    kept = []
    for text in path.read_text(encoding="utf-8").splitlines(keepends=True):
        try:
            row = json.loads(text)
        except ValueError:
            continue
        if text.endswith("\n") and row["step"] <= last:
            kept.append(text)
    beside = path.with_name(path.name + ".new")
    beside.write_text("".join(kept), encoding="utf-8")
    os.replace(beside, path)


def events(folder: Path, start: int) -> Callable[[int | None, dict[str, float]], None] | None:
    """What writes numbers for TensorBoard: (step, numbers by name), (None, {}) at the end; None if it is not
    installed."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        return None
    writer = EventFileWriter(str(folder))
    if start:  # what an earlier part wrote of these steps is not shown
        writer.add_event(Event(wall_time=time.time(), step=start + 1, session_log=SessionLog(status=SessionLog.START)))

    def write(step: int | None, numbers: dict[str, float]) -> None:
        if step is None:
            writer.close()
            return
        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
    return write
