"""The training run of the demo: batches, schedule, step, validation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import genesis
from genesis.cli.corpus import Bytes
from genesis.cli.record import Settings, TrainingStep
from genesis.engine.backends import backend_of

WARMUP_STEPS = 20
"""Steps in which the learning rate rises to its highest."""

FINAL_LR_SHARE = 0.1
"""The part of the highest learning rate at which its cosine ends."""

CLIP_NORM, WEIGHT_DECAY, BETAS = 1.0, 0.1, (0.9, 0.99)
"""The norm that gradients are clipped to, and AdamW's: as nanoGPT trains models of this size."""

READ_LOSS_EVERY = 10
"""Steps between two reads of the loss where reading waits for the device; elsewhere each is read."""


def build_model(settings: Settings) -> Any:
    """The GPT of these settings over bytes, on their device."""
    from genesis.models import GPT, GPTConfig
    genesis.manual_seed(settings.seed)
    config = GPTConfig(vocab_size=256, context=settings.context, layers=settings.layers, heads=settings.heads,
                       dim=settings.dim, dropout=0.0)
    return GPT(config).to(settings.device)


def build_optimizer(model: Any, settings: Settings) -> Any:
    """AdamW; weight decay on matrices only, as is usual for transformers."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return genesis.optim.AdamW([{"params": matrices, "weight_decay": WEIGHT_DECAY},
                                {"params": others, "weight_decay": 0.0}], lr=settings.lr, betas=BETAS)


def learning_rate(step: int, settings: Settings) -> float:
    """Linear warm-up, then half a cosine down to a tenth. Steps count from 1.

    >>> settings = Settings(steps=100, lr=1.0)
    >>> [round(learning_rate(step, settings), 3) for step in (1, 20, 60, 100)]
    [0.05, 1.0, 0.55, 0.1]
    """
    warmup = min(WARMUP_STEPS, settings.steps)
    if step < warmup:
        return settings.lr * step / warmup
    progress = (step - warmup) / max(1, settings.steps - warmup)
    return settings.lr * (FINAL_LR_SHARE + (1 - FINAL_LR_SHARE) * (1 + math.cos(math.pi * progress)) / 2)


def windows(data: Bytes, starts: Any, settings: Settings) -> tuple[Any, Any]:
    """Inputs and targets, int64[len(starts), context] each; the targets are one byte further on."""
    taken = data[np.asarray(starts)[:, None] + np.arange(settings.context + 1)].astype(np.int64)
    return (genesis.tensor(taken[:, :-1], device=settings.device), genesis.tensor(taken[:, 1:], device=settings.device))


def train(model: Any, data: Bytes, settings: Settings, after_step: Callable[[TrainingStep], None]) -> None:
    """Train for `settings.steps` steps; `after_step` hears of each, in order, once its loss is known."""
    optimizer = build_optimizer(model, settings)
    random = np.random.default_rng(settings.seed)
    one_step = make_step(model, optimizer)
    if settings.compile:
        one_step = genesis.compile(one_step)
    pending: list[tuple[int, float, Any]] = []
    at_once = READ_LOSS_EVERY if backend_of(genesis.device(settings.device)).asynchronous else 1
    began = last = time.perf_counter()
    for step in range(1, settings.steps + 1):
        lr = learning_rate(step, settings)
        for group in optimizer.param_groups:
            group["lr"] = lr
        starts = random.integers(0, len(data) - settings.context, settings.batch)
        pending.append((step, lr, one_step(*windows(data, starts, settings))))
        if len(pending) == at_once or step == settings.steps or step == 1:
            losses = [loss.item() for _, _, loss in pending]
            now = time.perf_counter()
            speed = len(pending) * settings.batch * settings.context / (now - last)
            for (number, rate, _), value in zip(pending, losses, strict=True):
                after_step(TrainingStep(number, value, rate, speed, now - began))
            pending.clear()
            last = time.perf_counter()  # time in `after_step`, such as validation, does not count


def make_step(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """The function of one training step: batch in, loss out, parameters updated."""
    def one_step(x: Any, y: Any) -> Any:
        loss = model(x, y)[1]
        optimizer.zero_grad()
        loss.backward()
        genesis.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        return loss.detach()
    return one_step


def validate(model: Any, data: Bytes, settings: Settings, batches: int) -> float:
    """Mean loss over windows spread evenly over the data, in nats per byte. No gradients."""
    model.eval()
    with genesis.no_grad():
        losses = [model(*windows(data, starts, settings))[1].item() for starts in _spread(data, settings, batches)]
    model.train()
    return sum(losses) / len(losses)


def _spread(data: Bytes, settings: Settings, batches: int) -> Iterator[Any]:
    last = len(data) - settings.context - 1
    starts = np.linspace(0, last, batches * settings.batch).astype(np.int64)
    yield from starts.reshape(batches, settings.batch)


def sample(model: Any, prompt: Bytes, count: int, settings: Settings, temperature: float = 0.8) -> bytes:
    """`count` bytes that the model writes after the prompt."""
    begun = genesis.tensor(prompt[None].astype(np.int64), device=settings.device)
    text = model.generate(begun, count, temperature=temperature, seed=settings.seed)
    return text.cpu().numpy()[0, len(prompt):].astype(np.uint8).tobytes()


def save(model: Any, folder: Path) -> None:
    """Write the model as a folder like those of other language models, with a tokenizer whose tokens are bytes."""
    from genesis.models import GPT2LMHeadModel
    from genesis.models.text import write_byte_tokenizer
    GPT2LMHeadModel.from_gpt(model).save_pretrained(folder)
    write_byte_tokenizer(folder, end=False)
