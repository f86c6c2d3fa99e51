"""Training scripts with what is around a step: callbacks and configurations, folds that stop early, closures."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from .lab import Lab, program


class Config:
    """Options by name, some of which a command line replaces."""

    def __init__(self, **options: Any) -> None:
        self.__dict__.update(options)

    def merge(self, arguments: list[str]) -> Config:
        """Replace options by `--name=value`, each of its own type."""
        for argument in arguments:
            name, value = argument.removeprefix("--").split("=")
            setattr(self, name, type(getattr(self, name))(value))
        return self


@program(chaotic=True)
def trainer_with_callbacks(lab: Lab) -> Any:
    """minGPT's trainer: groups by the kind of module, its own sampler, callbacks, the best state kept and resumed."""
    T, nn = lab.T, lab.nn
    config = Config(batch=6, lr=1e-2, steps=12, clip=1.0, width=8).merge(["--width=12", "--clip=0.5"])

    class Sums(T.utils.data.Dataset):
        """Two digits, and their sum written backwards; only the sum is asked for."""

        def __init__(self, part: str) -> None:
            order = T.from_numpy(lab.draws.permutation(100))
            self.chosen = order[:20] if part == "test" else order[20:]

        def __len__(self) -> int:
            return self.chosen.nelement()

        def __getitem__(self, index: int) -> Any:
            a, b = divmod(self.chosen[index].item(), 10)
            digits = [int(d) for d in f"{a}{b}" + f"{a + b:02d}"[::-1]]
            x, y = (T.tensor(part, dtype=T.long) for part in (digits[:-1], digits[1:]))
            y[:1] = -1
            return x, y

    class Repeating(T.utils.data.Sampler):
        def __init__(self, size: int, count: int) -> None:
            self.size, self.count = size, count

        def __iter__(self) -> Any:
            return iter(lab.draws.integers(0, self.size, self.count).tolist())

        def __len__(self) -> int:
            return self.count

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(10, config.width), nn.Parameter(T.zeros(1, 3, config.width))
            layer = nn.TransformerEncoderLayer(config.width, 2, 2 * config.width, dropout=0.0, activation="gelu",
                                               batch_first=True, norm_first=True)
            self.body, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(
                config.width, 10)

        def forward(self, x: Any, y: Any = None) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device)
            logits = self.head(self.body(self.tokens(x) + self.places, mask=mask, is_causal=True))
            return logits, None if y is None else lab.F.cross_entropy(logits.flatten(0, 1), y.flatten(),
                                                                      ignore_index=-1)
    model = lab.same(Model())
    names: dict[bool, set[str]] = {True: set(), False: {"places"}}
    for path, module in model.named_modules():
        for name, _ in module.named_parameters(recurse=False):
            if path:
                decays = name.endswith("weight") and not isinstance(module, (nn.LayerNorm, nn.Embedding))
                names[decays].add(f"{path}.{name}")
    table = dict(model.named_parameters())
    assert not names[True] & names[False] and names[True] | names[False] == table.keys()
    optimizer = lab.optim.AdamW([{"params": [table[name] for name in sorted(names[decays])], "weight_decay": decay}
                                 for decays, decay in ((True, 0.1), (False, 0.0))], lr=config.lr, betas=(0.9, 0.95))
    callbacks: dict[str, list[Callable[[int], None]]] = defaultdict(list)
    data, held = Sums("train"), Sums("test")
    found: list[Any] = []
    kept: dict[str, Any] = {"loss": float("inf")}

    def evaluate() -> tuple[float, int]:
        model.eval()
        losses, right = T.zeros(4), 0
        with T.no_grad():
            for at, (x, y) in enumerate(T.utils.data.DataLoader(held, batch_size=5)):
                logits, loss = model(x.to(lab.device), y.to(lab.device))
                losses[at] = loss.item()
                right += int((logits.argmax(-1).cpu() == y.cpu())[y.cpu() >= 0].sum())
        model.train()
        return losses.mean().item(), right

    def keep_the_best(step: int) -> None:
        if step % 3 == 2:
            loss, right = evaluate()
            found.extend([loss, right])
            if loss < kept["loss"]:
                file = io.BytesIO()
                T.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file)
                kept.update(loss=loss, file=file)
    callbacks["batch_end"].append(keep_the_best)
    step_of = lab.step(lambda x, y: model(x, y)[1])
    batches: Any = iter(())
    for step in range(config.steps):
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(T.utils.data.DataLoader(data, sampler=Repeating(len(data), 24), batch_size=config.batch))
            x, y = next(batches)
        loss = step_of(x.to(lab.device), y.to(lab.device))
        model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        found.append(loss.item())
        for callback in callbacks["batch_end"]:
            callback(step)
    kept["file"].seek(0)
    saved = T.load(kept["file"])
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return [found, saved["step"], evaluate(), model.state_dict()["head.bias"]]


@program(chaotic=True)
def folds_that_stop_early(lab: Lab) -> Any:
    """Cross-validation: weighted classes, a rate that falls on a plateau, early stopping, where the network looks."""
    T, nn = lab.T, lab.nn
    images, labels = lab.draws.integers(0, 255, (24, 8, 8, 3)).astype(np.uint8), lab.draws.integers(0, 3, 24)

    class Images(T.utils.data.Dataset):
        def __len__(self) -> int:
            return len(images)

        def __getitem__(self, index: int) -> Any:
            x = T.tensor(images[index]).permute(2, 0, 1).contiguous().to(T.get_default_dtype()).div(255)
            return x.sub_(T.full((3, 1, 1), 0.5)).div_(T.full((3, 1, 1), 0.25)), int(labels[index])

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(True),
                                          nn.Conv2d(6, 6, 3, padding=1), nn.ReLU())
            self.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3))
            self.gradient: Any = None

        def keep(self, gradient: Any) -> None:
            self.gradient = gradient

        def forward(self, x: Any) -> Any:
            x = self.features(x)
            if x.requires_grad:
                x.register_hook(self.keep)
            return self.classifier(x)

    class EarlyStopping:
        def __init__(self, patience: int) -> None:
            self.patience, self.best, self.state, self.waited = patience, float("inf"), {}, 0

        def __call__(self, loss: float, model: Any) -> bool:
            self.waited += 1
            if loss < self.best:
                self.best, self.waited = loss, 0
                self.state = {name: x.clone() for name, x in model.state_dict().items()}
            return self.waited >= self.patience

    def accuracies(logits: Any, target: Any, most: tuple[int, ...]) -> list[float]:
        _, guessed = logits.topk(max(most), 1, True, True)
        right = guessed.t().eq(target.view(1, -1).expand_as(guessed.t()))
        return [right[:k].reshape(-1).to(logits.dtype).sum(0, keepdim=True).mul_(100.0 / len(target)).item()
                for k in most]
    data, found = Images(), list[Any]()
    criterion = nn.CrossEntropyLoss(weight=T.tensor([1.0, 2.0, 0.5]), label_smoothing=0.1)
    for held in np.array_split(lab.draws.permutation(24), 3):
        train = sorted(set(range(24)) - set(held.tolist()))
        model, stop = lab.same(Net()), EarlyStopping(2)
        optimizer = lab.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
        schedule = lab.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=0)
        for _ in range(5):
            model.train()
            for x, y in T.utils.data.DataLoader(data, batch_size=8, sampler=train):
                logits, y = model(x.to(lab.device)), y.to(lab.device)
                loss = criterion(logits, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found += accuracies(logits.detach(), y, (1, 2))
            model.eval()
            confusion, total = T.zeros(3, 3, dtype=T.int64), 0.0
            with T.no_grad():
                for x, y in T.utils.data.DataLoader(T.utils.data.Subset(data, held.tolist()), batch_size=3):
                    logits, y = model(x.to(lab.device)), y.to(lab.device)
                    total += criterion(logits, y).item() * x.size(0)
                    for truth, guess in zip(y, logits.argmax(dim=1), strict=True):
                        confusion[truth, guess] += 1
            schedule.step(total / len(held))
            found += [total, confusion, optimizer.param_groups[0]["lr"]]
            if stop(total, model):
                break
        model.load_state_dict(stop.state)
    scores = model(data[0][0].unsqueeze(0).to(lab.device))
    scores[:, scores.argmax(dim=1)].backward()
    shown = model.features(data[0][0][None].to(lab.device)).detach()
    for channel, weight in enumerate(model.gradient.mean(dim=[0, 2, 3])):
        shown[:, channel] *= weight
    looks = shown.mean(dim=1).squeeze().clamp(min=0)
    return [found, scores, looks / looks.max().clamp(min=1e-12)]


@program(chaotic=True)
def waves_by_closures(lab: Lab) -> Any:
    """Two LSTM cells predict sines and go on with what they predicted; LBFGS calls its closure several times a step."""
    T, nn = lab.T, lab.nn
    width = 7

    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.ModuleList([nn.LSTMCell(1, width), nn.LSTMCell(width, width)])
            self.out = nn.Linear(width, 1)

        def forward(self, x: Any, future: int = 0) -> Any:
            states = [(x.new_zeros(x.size(0), width), x.new_zeros(x.size(0), width)) for _ in self.cells]
            made: list[Any] = []

            def step(value: Any) -> Any:
                for at, cell in enumerate(self.cells):
                    states[at] = cell(value, states[at])
                    value = states[at][0]
                made.append(self.out(value))
                return made[-1]
            for value in x.split(1, dim=1):
                last = step(value)
            for _ in range(future):
                last = step(last)
            return T.cat(made, dim=1)
    places = np.arange(12) + lab.draws.integers(-16, 16, (5, 1))
    waves = T.tensor(np.sin(places / 4.0).astype(lab.dtype))
    model, criterion = lab.same(Waves()), nn.MSELoss()
    optimizer = lab.optim.LBFGS(model.parameters(), lr=0.8, max_iter=4)
    losses: list[float] = []
    forward = lab.step(model)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = criterion(forward(waves[2:, :-1]), waves[2:, 1:])
        loss.backward()
        losses.append(loss.item())
        return loss
    for _ in range(3):
        optimizer.step(closure)
    with T.no_grad():
        predicted = model(waves[:2, :-1], future=6)
    return [losses, criterion(predicted[:, :-6], waves[:2, 1:]), predicted]
