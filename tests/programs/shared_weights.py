"""What several hold at once: weights that two modules list, students that are their teachers' averages, lottery
tickets that go back to where they began, and files that another program reads."""

from __future__ import annotations

import io
import math
from collections import OrderedDict
from typing import Any

import numpy as np

from .lab import Lab, program


@program(chaotic=True, cpus_numbers=True)  # torch's fused loops update both listings of a weight at once on a GPU
def tied_words(lab: Lab) -> Any:
    """An embedding and a head with one weight, both of which are listed: each step is two of Adam's for it."""
    nn, F = lab.nn, lab.F
    words, mixing, head = lab.same(nn.Embedding(11, 6)), lab.same(nn.GRU(6, 6, batch_first=True)), nn.Linear(6, 11)
    lab.same(head)
    head.weight = words.weight
    listed = [p for module in (words, mixing, head) for p in module.parameters()]
    optimizer = lab.optim.Adam(listed, lr=1e-2, weight_decay=0.01)
    schedule = lab.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    @lab.step
    def step(text: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(mixing(words(text[:, :-1]))[0]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(listed, 0.5)
        optimizer.step()
        return loss, norm
    found = []
    for turn in range(6):
        found.append(step(lab.ints(11, 3, 7)))
        schedule.step()
        if turn == 3:
            optimizer.load_state_dict(optimizer.state_dict())
    state = optimizer.state_dict()
    return found, words.weight, [int(state["state"][number]["step"]) for number in sorted(state["state"])]


@program(quick=True)
def bytes_for_another_program(lab: Lab) -> Any:
    """llm.c's file of a model: a header of int32, then weights in float32 and as the bits of bfloat16; read again."""
    T, nn, F = lab.T, lab.nn, lab.F
    model = lab.same(nn.Sequential(OrderedDict(wte=nn.Embedding(8, 4), fc=nn.Linear(4, 6), act=nn.GELU(),
                                               head=nn.Linear(6, 8, bias=False))))
    optimizer = lab.optim.SGD(model.parameters(), lr=0.5)

    @lab.step
    def step(text: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss
    found = [step(lab.ints(8, 2, 5)).item() for _ in range(4)]
    header = T.zeros(16, dtype=T.int32)
    header[0], header[1], header[2:4] = 20240326, 5, T.tensor([8, 4])
    file = io.BytesIO()
    file.write(header.cpu().numpy().tobytes())
    for p in model.parameters():
        bits = p.detach().cpu().to(T.float32).to(T.bfloat16).view(T.int16)
        file.write(bits.numpy().tobytes())
    whole = np.frombuffer(file.getvalue(), np.int16)
    at, errors = 32, []
    for p in model.parameters():
        part = T.from_numpy(whole[at:at + p.numel()].copy()).view(T.bfloat16).view(p.shape).float()
        errors.append(bool(((part - p.detach().cpu()).abs() <= p.detach().cpu().abs() / 128).all()))
        at += p.numel()
    return found, whole[:4], errors, len(file.getvalue()), list(model.state_dict())


@program(chaotic=True, cpus_numbers=True)  # torch's norms of a float64 weight have 3e-8 of an error on a GPU
def self_distilled(lab: Lab) -> Any:
    """DINO: crops of two sizes, a teacher that is the student's average, a centre, and a head of weights by norm."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 6))
            self.last_layer = nn.utils.parametrizations.weight_norm(nn.Linear(6, 10, bias=False))

        def forward(self, x: Any) -> Any:
            return self.last_layer(F.normalize(self.mlp(x), dim=-1, p=2))

    class Crops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                          nn.Flatten())
            self.head = Head()

        def forward(self, crops: Any) -> Any:
            ends = T.cumsum(T.unique_consecutive(T.tensor([x.shape[-1] for x in crops]), return_counts=True)[1], 0)
            start, found = 0, T.empty(0).to(crops[0].device)
            for end in ends:
                found = T.cat((found, self.backbone(T.cat(crops[start:end]))))
                start = end
            return self.head(found)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("centre", T.zeros(1, 10))

        def forward(self, student: Any, teacher: Any) -> Any:
            students = (student / 0.1).chunk(4)
            teachers = F.softmax((teacher - self.centre) / 0.04, dim=-1).detach().chunk(2)
            total, terms = 0, 0
            for a, wanted in enumerate(teachers):
                for b, given in enumerate(students):
                    if a != b:
                        total += T.sum(-wanted * F.log_softmax(given, dim=-1), dim=-1).mean()
                        terms += 1
            with T.no_grad():
                self.centre = self.centre * 0.9 + T.sum(teacher, dim=0, keepdim=True) / len(teacher) * 0.1
            return total / terms
    student, teacher, loss_of = lab.same(Crops()), Crops(), Loss()
    lengths = student.head.last_layer.parametrizations.weight.original0
    lengths.data.fill_(1)
    lengths.requires_grad = False
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    matrices, others = [], []
    for name, p in student.named_parameters():
        if p.requires_grad:
            (others if name.endswith(".bias") or len(p.shape) == 1 else matrices).append(p)
    optimizer = lab.optim.AdamW([{"params": matrices}, {"params": others, "weight_decay": 0.0}])
    rates = np.concatenate((np.linspace(0, 0.01, 2), 0.001 + 0.0045 * (1 + np.cos(np.pi * np.arange(6) / 6))))
    found = []
    for turn in range(6):
        for number, group in enumerate(optimizer.param_groups):
            group["lr"] = rates[turn]
            if number == 0:
                group["weight_decay"] = 0.04 + 0.1 * turn
        crops = [lab.normal(3, 3, side, side) for side in (8, 8, 5, 5)]
        loss = loss_of(student(crops), teacher(crops[:2]))
        if not math.isfinite(loss.item()):
            raise SystemExit(1)
        optimizer.zero_grad()
        loss.backward()
        norms = []
        for p in student.parameters():
            if p.grad is not None:
                norms.append(p.grad.data.norm(2).item())
                if 0.3 / (norms[-1] + 1e-6) < 1:
                    p.grad.data.mul_(0.3 / (norms[-1] + 1e-6))
        for name, p in student.named_parameters():
            if "last_layer" in name and turn < 1:
                p.grad = None
        optimizer.step()
        with T.no_grad():
            for q, k in zip(student.parameters(), teacher.parameters(), strict=True):
                k.data.mul_(0.99).add_((1 - 0.99) * q.detach().data)
        found.append((loss.item(), norms))
    return found, loss_of.centre, dict(teacher.state_dict())


@program(chaotic=True)
def lottery_tickets(lab: Lab) -> Any:
    """Weights below a threshold of all layers are masked, three times; the others go back to where they began."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Masked(nn.Linear):  # type: ignore[misc, name-defined]
        def __init__(self, ins: int, outs: int) -> None:
            super().__init__(ins, outs)
            self.register_buffer("mask", T.ones_like(self.weight, dtype=T.bool))
            self.weight.register_hook(lambda g: g * self.mask)

        def forward(self, x: Any) -> Any:
            return F.linear(x, self.weight * self.mask, self.bias)

        def extra_repr(self) -> str:
            return super().extra_repr() + f", kept={self.mask.float().mean():.2%}"
    net = lab.same(nn.Sequential(Masked(6, 12), nn.ReLU(), Masked(12, 3)))
    layers = [layer for layer in net if isinstance(layer, Masked)]
    start = {name: value.clone() for name, value in net.state_dict().items() if not name.endswith("mask")}
    optimizer = lab.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss
    found, shown = [], []
    for _ in range(3):
        found += [step(lab.normal(8, 6), lab.ints(3, 8)).item() for _ in range(3)]
        sizes = T.cat([layer.weight.detach().abs()[layer.mask] for layer in layers])
        least = sizes.kthvalue(int(0.3 * sizes.numel())).values
        for layer in layers:
            layer.mask &= layer.weight.abs() > least
        net.load_state_dict({**net.state_dict(), **start})
        shown.append(repr(net))
    return found, shown, dict(net.state_dict())
