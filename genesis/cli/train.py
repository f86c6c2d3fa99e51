"""Trains a language model as a TOML file says.

    genesis data books/ -t bytes -o data/books
    genesis train tiny.toml

where tiny.toml holds

    out = "runs/tiny"
    steps = 1000

    [data]
    train = "data/books"
    context = 256

    [model]                      # a family and the fields of its config.json; or folder = "…", to go on with a model
    family = "llama"
    hidden_size = 128
    intermediate_size = 384
    num_hidden_layers = 4
    num_attention_heads = 4

With --mesh dp=4 four processes of this host share the rows of each batch (on GPUs one each); under torchrun, srun or
mpirun those that it has started do. fsdp=4 shards the parameters, too; tp=2 shares out the work of each layer, and
dp=2,fsdp=2,tp=2 does all.

The run's folder gets metrics.jsonl, checkpoints/ and, at the end, model/. Ctrl-C and SIGTERM save at the end of the
step; the same command goes on from there, bit by bit as if nothing had happened.

This file uses public names only: copy it to change the loop (python your_copy.py tiny.toml).
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from genesis.cli import language, ranks

if TYPE_CHECKING:
    import genesis
    from genesis.cli.run_config import OptimizerConfig, RunConfig, ScheduleConfig, TrainConfig
    from genesis.models import CausalLM
    from genesis.models.text import Tokenizer
    from genesis.utils.data import DataLoader

Config = TypeVar("Config", bound="RunConfig")

HELP = "train a language model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line."""
    parser.add_argument("config", type=Path, help="a TOML file; see above")
    parser.add_argument("--mesh", help="dp=N, zero1=N or fsdp=N: N ranks, which share the rows of a batch, with zero1 "
                        "what the optimizer keeps, with fsdp parameters, too; tp=N: which share layers; or several, as "
                        "fsdp=2,tp=2")


def run(arguments: argparse.Namespace) -> int:
    """Train, or go on training. 0 at the end of the run; 128 + the signal's number when one stopped it."""
    return language.refused(lambda: _run(arguments.config, arguments.mesh))


def _run(path: Path, mesh: str | None) -> int:
    from genesis.cli.run_config import read_config
    config, sizes = read_config(path), ranks.sizes_of(mesh) if mesh else {}
    if mesh:
        ranks.check_rows(config.batch, sizes)  # before any of them starts
    if mesh and not ranks.is_started():
        return ranks.start(["train", str(path), "--mesh", mesh], math.prod(sizes.values()))
    here = ranks.join(sizes) if mesh else ranks.ALONE
    ending = fit(prepared(config, here))
    here.leave()
    if here.is_first:
        print(ending.text, flush=True)
    return ending.status


# What is trained, on what

@dataclass
class Run:
    """What a run is made of.

    Attributes:
        config: see `RunConfig`.
        model: a `CausalLM`, on its device.
        trained: what has the state of all that is learnt, for checkpoints: the model, or its low-rank layers.
        batches: rows of `batch` · `accumulate` for each step: `input_ids`, `targets`, perhaps `documents` and
            `position_ids`.
        validation: the batches of an evaluation, in the same order each time; or None.
        tokenizer: for samples; or None.
        save: writes what was trained, at the end; returns the folder.
        ranks: those that share the rows of a batch.
    """

    config: RunConfig
    model: CausalLM
    trained: Any
    batches: DataLoader
    validation: DataLoader | None
    tokenizer: Tokenizer | None
    save: Callable[[], Path]
    ranks: ranks.Ranks = ranks.ALONE


def prepared(config: TrainConfig, here: ranks.Ranks = ranks.ALONE) -> Run:
    """The run of a configuration: a model that is new or a folder's, and windows over tokens.

    Raises:
        FileNotFoundError: a folder is missing.
        ValueError: a field of the model is unknown, or the parts do not fit each other.
    """
    import genesis
    from genesis.models.data import TokenWindows
    from genesis.models.text import Tokenizer
    from genesis.utils.data import DataLoader
    config = resolved(config)
    genesis.manual_seed(config.seed)
    data = config.data
    rows = TokenWindows(data.train, data.context, data.documents)
    model = build_model(config.model, rows.folder.vocab_size, config.device, rows.folder.end_id)
    if model.spec.vocab_size < rows.folder.vocab_size:
        raise ValueError(f"{data.train} has tokens below {rows.folder.vocab_size}, the model a vocabulary of "
                         f"{model.spec.vocab_size}")
    if model.spec.context < data.context:
        raise ValueError(f"data.context = {data.context} is longer than the model's context, {model.spec.context}")
    validation: DataLoader | None = None
    if data.validation is not None:
        validation = DataLoader(TokenWindows(data.validation, data.context, data.documents), config.batch,
                                generator=genesis.Generator())
    has_tokenizer = (rows.folder.path / "tokenizer.json").is_file()
    tokenizer = Tokenizer.from_pretrained(rows.folder.path) if config.samples.every else None
    if tokenizer is not None:
        check_samples(config, model, tokenizer)
    return Run(config, model, model, loader(rows, config), validation, tokenizer,
               lambda: save_folder(model, Path(config.out) / "model", rows.folder.path if has_tokenizer else None),
               here)


def check_samples(config: RunConfig, model: CausalLM, tokenizer: Tokenizer) -> None:
    """Raise ValueError where samples cannot be written: now, and not when the first one is due."""
    wanted, most = config.samples, model.spec.position_table
    if not tokenizer.encode(wanted.prompt):
        raise ValueError(f"samples.prompt = {wanted.prompt!r} has no token to continue")
    if most and wanted.tokens >= most:
        raise ValueError(f"samples.tokens = {wanted.tokens} and a prompt are more than the model's {most} positions")


def resolved(config: Config) -> Config:
    """The configuration with a device and a precision: of a GPU if there is one."""
    device = language.device_of(config.device)
    precision = config.precision or ("float32" if device == "cpu" else "bfloat16")
    return replace(config, device=device, precision=precision)


def build_model(fields: Mapping[str, Any], vocab_size: int, device: str | None, end: int | None = None) -> CausalLM:
    """A folder's model, or a new one of a family, with the data's vocabulary and its end of a text unless the fields
    say otherwise."""
    import genesis
    from genesis.models import AutoModelForCausalLM, config_for
    given = dict(fields)
    for name in ("folder", "family"):
        if not isinstance(given.get(name, ""), str):
            raise ValueError(f"model.{name} = {given[name]!r} is no text")
    if "folder" in given:
        if placed := sorted(given.keys() & {"device", "dtype", "revision", "torch_dtype"}):
            raise ValueError(f"[model] takes no {placed[0]!r} beside 'folder': weights that are learnt are float32, on "
                             "the run's device, and 'precision' is that of products")
        folder = given.pop("folder")
        return AutoModelForCausalLM.from_pretrained(folder, dtype=genesis.float32, device=device, **given).train()
    if "family" not in given:
        raise ValueError("[model] needs 'family', or 'folder' to go on with the model of one")
    family = given.pop("family")
    ours = {"vocab_size": vocab_size, "bos_token_id": None, "eos_token_id": end}
    return AutoModelForCausalLM.from_config(config_for(family, **{**ours, **given})).to(device)


def loader(rows: Any, config: RunConfig) -> DataLoader:
    """Batches of a step, in another order in each pass; a GPU gets them while it computes.

    Raises:
        ValueError: there are fewer rows than one step takes.
    """
    from genesis.utils.data import DataLoader
    size = config.batch * config.accumulate
    if len(rows) < size:
        raise ValueError(f"the data has {len(rows)} rows, a step takes {config.batch} × {config.accumulate}: "
                         "make the batch smaller")
    return DataLoader(rows, size, shuffle=True, drop_last=True, num_workers=config.workers,
                      persistent_workers=config.workers > 0, prefetch_device=config.device)


def save_folder(model: CausalLM, folder: Path, tokenizer: Path | None) -> Path:
    """Write a model, and the tokenizer of another folder beside it."""
    from genesis.models.data import copy_tokenizer
    model.save_pretrained(folder)
    if tokenizer is not None:
        copy_tokenizer(tokenizer, folder)
    return folder


# How it is trained

@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        status: 0, or 128 + the number of the signal that stopped it.
        text: for people.
    """

    status: int
    text: str


def fit(run: Run) -> Ending:
    """Train from the newest checkpoint, or from the start, to the last step or a signal.

    Raises:
        ValueError: the folder holds a run of another configuration, or another program is in it.
    """
    from genesis.cli.run_folder import alone_in
    with alone_in(Path(run.config.out)) if run.ranks.is_first else nullcontext():
        return trained(run)


def trained(run: Run) -> Ending:
    """`fit`, in a folder that no other program writes to."""
    from genesis.checkpointing import CheckpointManager
    from genesis.cli.run_config import check_same
    from genesis.cli.run_inputs import inputs_of
    from genesis.cli.run_log import RunLog, SilentLog, work_of
    config, out, first = run.config, Path(run.config.out), run.ranks.is_first
    manager = CheckpointManager(out / "checkpoints", keep=config.checkpoints.keep, every=config.checkpoints.every)
    work = work_of(run.model, run.batches.dataset.context, config)
    run.ranks.share_out(run.model, config.optimizer.name)
    parts = state_of(run)
    if first:
        check_same(config, out, bool(manager.checkpoints()), inputs_of(config))
    found = manager.resume(**parts)
    for name, why in found.skipped if first else ():
        print(f"checkpoint {name} is skipped: {why}", file=sys.stderr)
    if found.step and first:
        print(f"going on behind step {found.step} of {config.steps}, from {found.path}", flush=True)
    if run.model.config.get("output_router_logits") and first:
        print("output_router_logits: what is learnt is the text alone, not the experts' balance", file=sys.stderr)
    one_step, batches, step = make_step(run, parts), endless(run.batches), found.step
    stopping = 0
    open_log = RunLog if first else SilentLog
    with StopFlag() as stop, open_log(out, config.log, config.steps, step, work, config.device) as log:
        while step < config.steps and not stopping:
            loss, norm = one_step(next(batches))
            rate = parts["scheduler"].get_last_lr()[0]
            for name, part in parts.items():
                if name.endswith("scheduler"):
                    part.step()
            step += 1
            log.step(step, loss, norm, rate)
            last = step == config.steps
            if run.validation is not None and is_due(step, config.evaluation.every, last):
                log.validation(step, evaluate(run))
            if run.tokenizer is not None and is_due(step, config.samples.every, last):
                log.sample(step, config.samples.prompt, sample(run, step))
            if run.ranks.size == 1 or is_due(step, config.log.every, last) or manager.due(step):
                stopping = run.ranks.largest(stop.signal)  # all stop behind the same step
            if manager.due(step) or last or stopping:
                log.flush()
                if run.ranks.saves:
                    manager.save(step, **parts)
        manager.wait()
    if step < config.steps:
        return Ending(128 + stopping, f"stopped behind step {step} of {config.steps}: the same command goes on")
    folder = run.save() if run.ranks.exports else None
    return Ending(0, f"{config.steps} steps are done; the model is in {folder}" if first else "")


def is_due(step: int, every: int, last: bool) -> bool:
    """Is it time for what is done every so many steps, 0 for never, and at the end?"""
    return every > 0 and (step % every == 0 or last)


def state_of(run: Run) -> dict[str, Any]:
    """All that has a state, by the names that a checkpoint has them under (and the random generators, unnamed)."""
    import genesis
    config = run.config
    parts = {"model": run.trained, "loader": run.batches}
    for name, optimizer in build_optimizers(run.model, config.optimizer, run.ranks).items():
        parts[name] = optimizer
        parts[name.replace("optimizer", "scheduler")] = genesis.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: learning_rate(step, config.steps, config.schedule))
    if config.precision == "float16":
        parts["scaler"] = genesis.amp.GradScaler()
    return parts


def build_optimizers(model: CausalLM, config: OptimizerConfig, here: ranks.Ranks = ranks.ALONE) -> dict[str, Any]:
    """AdamW, which shrinks matrices only; beside it Muon for the matrices of the blocks, if it is wanted."""
    from genesis import optim
    inside = [p for p in model.model.layers.parameters() if p.ndim == 2 and p.requires_grad]
    inside = inside if config.name == "muon" else []
    others = [p for p in model.parameters() if p.requires_grad and not any(p is q for q in inside)]
    groups = [{"params": [p for p in others if p.ndim >= 2], "weight_decay": config.weight_decay},
              {"params": [p for p in others if p.ndim < 2], "weight_decay": 0.0}]
    found: dict[str, Any] = {"optimizer": here.optimizer(
        optim.AdamW, [group for group in groups if group["params"]], lr=config.lr, betas=config.betas, eps=config.eps)}
    if inside:
        found["matrix_optimizer"] = optim.Muon(inside, lr=config.matrix_lr, momentum=config.momentum,
                                               weight_decay=config.weight_decay)
    return found


def learning_rate(step: int, steps: int, schedule: ScheduleConfig) -> float:
    """The fraction of the learning rate after so many steps.

    >>> from genesis.cli.run_config import ScheduleConfig
    >>> [round(learning_rate(step, 100, ScheduleConfig(warmup=20, final=0.1)), 3) for step in (0, 9, 20, 60, 100)]
    [0.05, 0.5, 1.0, 0.55, 0.1]
    """
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    done = min(1.0, (step - schedule.warmup) / max(1, steps - schedule.warmup))
    height = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[schedule.decay]
    return schedule.final + (1 - schedule.final) * height


def make_step(run: Run, parts: Mapping[str, Any]) -> Callable[[Mapping[str, genesis.Tensor]], tuple[Any, Any]]:
    """The function of one step: a batch in, the mean loss of its targets and the norm of the gradients out."""
    import genesis
    from genesis.nn.utils import clip_grad_norm_
    config, device, model, here = run.config, run.config.device, run.model, run.ranks
    computing = here.data_parallel(model)
    optimizers = [part for name, part in parts.items() if name.endswith("optimizer")]
    scaler = parts.get("scaler", genesis.amp.GradScaler(enabled=False))
    learnt = [p for p in model.parameters() if p.requires_grad]

    def one_step(batch: Mapping[str, Any]) -> tuple[Any, Any]:  # cuts the batch: a replay takes whole memories only
        pieces = {name: x.chunk(config.accumulate) for name, x in batch.items()}
        micro_batches = [{name: here.own(x[i]) for name, x in pieces.items()} for i in range(config.accumulate)]
        total = genesis.zeros((), device=device)
        count = here.total(genesis.stack([(rows["targets"] >= 0).sum() for rows in micro_batches]).sum())
        share = 1 / count.clamp(min=1)
        for rows in micro_batches:
            loss = summed_loss(computing, rows, config) * share
            scaler.scale(loss * here.shares).backward()  # gradients become the means of all shares'
            total = total + loss.detach()
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        norm = clip_grad_norm_(learnt, config.clip or math.inf)
        for optimizer in optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
        return here.total(total), norm.detach()

    replayed = genesis.compile(one_step) if config.compile and config.precision != "float16" else one_step
    return lambda batch: replayed({name: x.to(device) for name, x in batch.items()})


def summed_loss(model: Any, batch: Mapping[str, Any], config: RunConfig) -> Any:
    """The cross-entropy in nats of a batch's targets, summed."""
    import genesis
    import genesis.nn.functional as F
    low = config.precision != "float32"
    dtype = getattr(genesis, config.precision or "") if low else genesis.bfloat16
    with genesis.autocast(batch["input_ids"].device.type, dtype=dtype, enabled=low):
        logits = model(batch["input_ids"], position_ids=batch.get("position_ids"),
                       documents=batch.get("documents")).logits
        return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), reduction="sum")


def endless(batches: DataLoader) -> Iterator[Mapping[str, genesis.Tensor]]:
    """Pass after pass."""
    while True:
        yield from batches


def evaluate(run: Run) -> float:
    """The mean loss in nats of the validation's first batches."""
    import genesis
    assert run.validation is not None
    device, most = run.config.device, run.config.evaluation.batches
    total, count = 0.0, 0
    run.model.eval()
    with genesis.no_grad():
        for number, batch in enumerate(run.validation, 1):
            count += int((batch["targets"] >= 0).sum().item())
            total += summed_loss(run.model, {name: x.to(device) for name, x in batch.items()}, run.config).item()
            if number == most:
                break
    run.model.train()
    return total / max(count, 1)


def sample(run: Run, step: int) -> str:
    """What the model writes now. Its draws are its own: they change none of the training's."""
    from genesis.models.text import stream_generate
    assert run.tokenizer is not None
    wanted = run.config.samples
    room = run.model.spec.context - wanted.tokens
    ids = run.tokenizer.encode(wanted.prompt)[-max(room, 1):]
    with run.ranks.outside_of_forward(run.model):
        return "".join(part.text for part in stream_generate(
            run.model, run.tokenizer, ids, wanted.tokens, temperature=wanted.temperature, seed=run.config.seed + step))


# What is around it

class StopFlag:
    """While it is entered, the first Ctrl-C or SIGTERM is noted, and the next one raises KeyboardInterrupt.

    Attributes:
        signal: the number of the one that came; 0 for none.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # no other gets signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._came)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    sys.exit(run(parser.parse_args()))
