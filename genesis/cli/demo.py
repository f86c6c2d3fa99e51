"""Train a small language model on real text, on this machine, and show what was compiled.

A byte-level GPT learns the sources of Python's standard library; some files are kept apart for validation. It
passes (exit status 0) when its validation loss is below the entropy of the validation text's own bigrams, which no
model that looks at one byte only can reach. Writes report.html, metrics.jsonl and the folder model, which
`genesis chat` talks to.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from genesis.cli.record import Bars, MetricsFile, Outcome, Settings, TrainingStep
from genesis.ir.types import device_types, is_device

HELP = "train a small language model and write a report"

VALIDATIONS = 10          # how many times on the way
QUICK_BATCHES = 8         # batches of a validation on the way
FINAL_BATCHES = 64        # and of the last one
SAMPLE_BYTES = 300        # bytes of a text that the model writes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags; each is a field of `Settings`, with its default."""
    default = Settings()
    parser.add_argument("--device", default=default.device,
                        help="cpu, cuda or another registered device (default: %(default)s)")
    for name, what in (("steps", "training steps"), ("layers", "transformer blocks"), ("dim", "width"),
                       ("heads", "attention heads"), ("batch", "windows a step"), ("context", "bytes a window"),
                       ("seed", "of the weights, the batches and the sample")):
        parser.add_argument(f"--{name}", type=int, default=getattr(default, name),
                            help=f"{what} (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=default.lr, help="highest learning rate (default: %(default)s)")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=default.compile,
                        help="genesis.compile the step: its Python runs once (default: no)")
    parser.add_argument("--out", default=default.out, help="folder for the report (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Train, report, judge. 0: below the bar; 1: not; 2: cannot run here."""
    settings = Settings(**{field.name: getattr(arguments, field.name) for field in fields(Settings)})
    problem = _problem(settings)
    if problem is not None:
        print(f"genesis demo: {problem}", file=sys.stderr)
        return 2
    outcome, compiled = _train(settings)
    _show(outcome, compiled)
    return 0 if outcome.passed else 1


def _problem(settings: Settings) -> str | None:
    """Why these settings cannot run; None when they can."""
    for name in ("steps", "layers", "dim", "heads", "batch", "context"):
        if getattr(settings, name) < 1:
            return f"--{name} must be at least 1"
    if settings.dim % settings.heads:
        return f"--dim {settings.dim} is not a multiple of --heads {settings.heads}"
    if not is_device(settings.device):
        return f"--device {settings.device} is none of {', '.join(device_types())}"
    if settings.device.startswith("cuda"):
        import genesis
        if not genesis.cuda.is_available():
            return ("--device cuda: no GPU can be used here. Does nvidia-smi list one, and is cuda-python installed "
                    "(pip install 'genesis-compiler[cuda]')?")
    return None


def _train(settings: Settings) -> tuple[Outcome, Any]:
    """Run everything; returns what happened and the last training step as compiled."""
    from genesis.cli import bigram, corpus, inspect, progress, training
    clock = _Stopwatch()
    with clock("reading the text"):
        text = corpus.load()
        bars = Bars(bigram.conditional_entropy(text.validation),
                    bigram.bigram_cross_entropy(text.train, text.validation))
    print(f"text: {len(text.train):,} bytes to train on, {len(text.validation):,} to validate "
          f"({text.files[0]} and {text.files[1]} files of {text.origin})")
    with clock("building the model"):
        model = training.build_model(settings)
    print(f"model: {model.parameter_count():,} parameters, {settings.layers} layers of width {settings.dim}, "
          f"on {settings.device}", flush=True)

    steps: list[TrainingStep] = []
    validations: list[tuple[int, float]] = []
    compiled: list[Any] = [None]
    every = max(1, settings.steps // VALIDATIONS)
    shown = progress.make_progress(settings.steps)

    def after_step(step: TrainingStep) -> None:
        steps.append(step)
        metrics.write(step)
        shown.step(step)
        last = step.step == settings.steps
        if step.step == 1 or last:
            compiled[0] = inspect.last_step()
        if step.step % every == 0 or last:
            with clock("validation"):
                loss = training.validate(model, text.validation, settings, FINAL_BATCHES if last else QUICK_BATCHES)
            validations.append((step.step, loss))
            shown.note(f"  validation after {step.step} steps: {loss:.4f}  (bar {bars.entropy:.4f})")

    with MetricsFile(Path(settings.out) / "metrics.jsonl") as metrics, shown, clock("training"):
        training.train(model, text.train, settings, after_step)
    prompt = text.validation[:settings.context]
    with clock("writing a sample"):
        sample = training.sample(model, prompt, SAMPLE_BYTES, settings)
    training.save(model, Path(settings.out) / "model")
    facts = (("from", text.origin), ("training", f"{len(text.train):,} bytes of {text.files[0]} files"),
             ("validation", f"{len(text.validation):,} bytes of {text.files[1]} files"))
    outcome = Outcome(settings, model.parameter_count(), facts, tuple(steps), tuple(validations), bars,
                      prompt.tobytes().decode("utf-8", "replace"), sample.decode("utf-8", "replace"),
                      clock.timings(steps[0].elapsed))
    return outcome, compiled[0]


def _show(outcome: Outcome, compiled: Any) -> None:
    """Sample, kernels and verdict on stdout; the report in its file."""
    from genesis.cli import inspect, report
    from genesis.cli.beside import beside
    also = beside(compiled)
    kernels = inspect.kernel_rows(compiled.schedule.groups)
    path = Path(outcome.settings.out) / "report.html"
    path.write_text(report.render(outcome, kernels, inspect.step_boxes(compiled.schedule), also), encoding="utf-8")
    print(f"\n--- sample, temperature 0.8 ---\n{outcome.prompt}|{outcome.sample}\n---\n")
    _print_kernels(kernels)
    if also is not None and also.program is not None:
        count = sum(row.count for row in inspect.kernel_rows(also.program.schedule.groups))
        print(f"compiled for cuda ({also.gpu}) the same step is {count} kernels: the report has them")
    seconds = dict(outcome.timings)
    print(f"\n{seconds['total']:.1f} s in all, {seconds['training']:.1f} s of it training")
    print(f"a bigram model of the training text: {outcome.bars.fitted:.4f} nats per byte")
    print(f"{'PASS' if outcome.passed else 'FAIL'}: validation loss {outcome.validation_loss:.4f}, "
          f"{'below' if outcome.passed else 'not below'} the bigram entropy {outcome.bars.entropy:.4f} (nats per byte)")
    model = path.with_name("model")
    chat = "genesis chat" if outcome.settings.out == Settings().out else f"genesis chat {model}"
    print(f"report: {path}\nmetrics: {path.with_name('metrics.jsonl')}\nmodel: {model} (talk to it: {chat})")


def _print_kernels(kernels: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from genesis.cli.inspect import counted
    table = Table(title=f"kernels of a training step: {sum(row.count for row in kernels)}", title_justify="left")
    for heading in ("count", "kind", "what was fused", "from"):
        table.add_column(heading, justify="right" if heading == "count" else "left", overflow="fold")
    for row in kernels:
        table.add_row(str(row.count), row.kind, counted(row.ops), ", ".join(row.lines))
    Console(width=None if sys.stdout.isatty() else 120, markup=False, highlight=False).print(table)


class _Stopwatch:
    """Seconds by name; what is measured inside something else is taken out of it."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._spent: dict[str, float] = {}
        self._inside = 0.0

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        began, before = time.perf_counter(), self._inside
        self._inside = 0.0
        try:
            yield
        finally:
            whole = time.perf_counter() - began
            self._spent[name] = self._spent.get(name, 0.0) + whole - self._inside
            self._inside = before + whole

    def timings(self, first_step: float) -> tuple[tuple[str, float], ...]:
        """All of them, with the first step (which compiles) and the total."""
        return (*self._spent.items(), ("of training: first step", first_step),
                ("total", time.perf_counter() - self._began))
