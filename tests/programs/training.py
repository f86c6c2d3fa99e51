"""Ways to train: own functions and optimizers, schedules, precision, accumulation, checkpoints, hooks."""

from __future__ import annotations

import copy
import io
import math
from typing import Any

from tests.optim import by_hand

from .lab import Lab, program


def perceptron(lab: Lab, ins: int = 6, outs: int = 3) -> Any:
    """A small model."""
    nn = lab.nn
    return lab.same(nn.Sequential(nn.Linear(ins, 12), nn.ReLU(), nn.Linear(12, outs)))


@program
def custom_function(lab: Lab) -> Any:
    """An autograd function with saved tensors and a mask of who needs gradients; a quantizer by straight-through."""
    T, nn = lab.T, lab.nn

    class LinearFunction(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, input: Any, weight: Any, bias: Any = None) -> Any:
            ctx.save_for_backward(input, weight, bias)
            output = input.mm(weight.t())
            if bias is not None:
                output += bias.unsqueeze(0).expand_as(output)
            return output

        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            input, weight, bias = ctx.saved_tensors
            grad_input = grad_output.mm(weight) if ctx.needs_input_grad[0] else None
            grad_weight = grad_output.t().mm(input) if ctx.needs_input_grad[1] else None
            grad_bias = grad_output.sum(0) if bias is not None and ctx.needs_input_grad[2] else None
            return grad_input, grad_weight, grad_bias

    class Round(T.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return T.round(x * 4) / 4

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad.clone()
    w1, b1, w2 = (nn.Parameter(lab.normal(*s) * 0.5) for s in ((8, 6), (8,), (3, 8)))
    optimizer = lab.optim.SGD([w1, b1, w2], lr=0.1, nesterov=True, momentum=0.9)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        hidden = T.tanh(LinearFunction.apply(x, w1, b1))
        loss = lab.F.cross_entropy(LinearFunction.apply(Round.apply(hidden), w2), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.normal(5, 6), lab.ints(3, 5)).item() for _ in range(10)]


@program(quick=True)
def custom_optimizers(lab: Lab) -> Any:
    """Lion, Muon and sharpness-aware minimization as people write them."""
    T = lab.T
    Base = T.optim.Optimizer

    class Lion(Base):
        def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.99), weight_decay: float = 0.0):
            super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

        @T.no_grad()
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    p.data.mul_(1 - group["lr"] * group["weight_decay"])
                    state = self.state[p]
                    if len(state) == 0:
                        state["exp_avg"] = T.zeros_like(p)
                    exp_avg, (beta1, beta2) = state["exp_avg"], group["betas"]
                    update = exp_avg * beta1 + p.grad * (1 - beta1)
                    p.add_(update.sign_(), alpha=-group["lr"])
                    exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)

    class Muon(Base):
        def __init__(self, params: Any, lr: float = 0.02):
            super().__init__(params, {"lr": lr})

        @T.no_grad()
        def step(self, closure: Any = None) -> Any:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if "momentum_buffer" not in state:
                        state["momentum_buffer"] = T.zeros_like(p.grad)
                    buf = state["momentum_buffer"]
                    buf.lerp_(p.grad, 0.05)
                    g = p.grad.lerp_(buf, 0.95)
                    X = g.to(p.dtype) / (g.norm() + 1e-7)
                    if g.size(-2) > g.size(-1):
                        X = X.mT
                    for _ in range(3):
                        A = X @ X.mT
                        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
                    if g.size(-2) > g.size(-1):
                        X = X.mT
                    p.add_(X.view_as(p), alpha=-group["lr"])

    class SAM(Base):
        def __init__(self, params: Any, base: Any, rho: float = 0.05, **kwargs: Any):
            super().__init__(params, dict(rho=rho, **kwargs))
            self.base_optimizer = base(self.param_groups, **kwargs)
            self.param_groups = self.base_optimizer.param_groups
            self.defaults.update(self.base_optimizer.defaults)

        @T.no_grad()
        def first_step(self) -> None:
            listed = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
            norm = T.norm(T.stack([p.grad.norm(p=2) for p in listed]), p=2)
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p]["old_p"] = p.data.clone()
                    p.add_(p.grad * (group["rho"] / (norm + 1e-12)).to(p))
            self.zero_grad()

        @T.no_grad()
        def second_step(self) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.data = self.state[p]["old_p"]
            self.base_optimizer.step()
            self.zero_grad()
    found = []
    for make in (lambda ps: Lion(ps, lr=1e-2, weight_decay=0.1), Muon,
                 lambda ps: SAM(ps, T.optim.SGD, lr=0.1, momentum=0.9)):
        model = lab.same(lab.nn.Sequential(lab.nn.Linear(6, 8, bias=False), lab.nn.Tanh(),
                                           lab.nn.Linear(8, 3, bias=False)))
        optimizer = make(model.parameters())
        x, y = lab.normal(8, 6), lab.ints(3, 8)

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> Any:
            loss = lab.F.cross_entropy(model(x), y)
            loss.backward()
            if isinstance(optimizer, SAM):
                optimizer.first_step()
                lab.F.cross_entropy(model(x), y).backward()
                optimizer.second_step()
            else:
                optimizer.step()
                optimizer.zero_grad()
            return loss
        taken = lab.step(step)
        found.append([taken().item() for _ in range(10)])
    return found


@program(chaotic=True)  # inverse roots of singular values: a last bit is 1e-7 of the loss after ten steps
def wrapped_and_preconditioned(lab: Lab) -> Any:
    """AdaBelief, Shampoo, and Lookahead around another optimizer, saved and loaded on the way, as people write them."""
    T = lab.T
    Optimizer = T.optim.Optimizer

    class AdaBelief(Optimizer):
        def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                     weight_decay: float = 0.0):
            if lr < 0.0:
                raise ValueError(f"Invalid learning rate: {lr}")
            super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

        def __setstate__(self, state: Any) -> None:
            super().__setstate__(state)
            for group in self.param_groups:
                group.setdefault("amsgrad", False)

        def step(self, closure: Any = None) -> Any:
            loss = None if closure is None else closure()
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    grad, state = p.grad.data, self.state[p]
                    if len(state) == 0:
                        state["step"] = 0
                        state["exp_avg"] = T.zeros_like(p.data, memory_format=T.preserve_format)
                        state["exp_avg_var"] = T.zeros_like(p.data, memory_format=T.preserve_format)
                    state["step"] += 1
                    exp_avg, exp_avg_var = state["exp_avg"], state["exp_avg_var"]
                    p.data.mul_(1.0 - group["lr"] * group["weight_decay"])
                    exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)
                    surprise = grad - exp_avg
                    exp_avg_var.mul_(beta2).addcmul_(surprise, surprise, value=1 - beta2)
                    denom = (exp_avg_var.add_(group["eps"]).sqrt() / (1 - beta2 ** state["step"]) ** 0.5)
                    p.data.addcdiv_(exp_avg, denom.add_(group["eps"]),
                                    value=-group["lr"] / (1 - beta1 ** state["step"]))
            return loss

    def matrix_power(matrix: Any, power: float) -> Any:
        u, s, v = T.svd(matrix)
        return u @ s.pow_(power).diag() @ v.t()

    class Shampoo(Optimizer):
        def __init__(self, params: Any, lr: float = 1e-1, momentum: float = 0.5, epsilon: float = 1e-2):
            super().__init__(params, {"lr": lr, "momentum": momentum, "epsilon": epsilon})

        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    grad = p.grad.data
                    order, original = grad.ndimension(), grad.size()
                    state, momentum = self.state[p], group["momentum"]
                    if len(state) == 0:
                        state["step"] = 0
                        state["momentum_buffer"] = grad.clone()
                        for number, size in enumerate(grad.size()):
                            state[f"precond_{number}"] = group["epsilon"] * T.eye(size, out=grad.new(size, size))
                            state[f"inv_precond_{number}"] = grad.new(size, size).zero_()
                    grad.mul_(1 - momentum).add_(state["momentum_buffer"], alpha=momentum)
                    for number, size in enumerate(original):
                        precond, inverse = state[f"precond_{number}"], state[f"inv_precond_{number}"]
                        grad = grad.transpose_(0, number).contiguous()
                        turned = grad.size()
                        grad = grad.view(size, -1)
                        precond.add_(grad @ grad.t())
                        inverse.copy_(matrix_power(precond, -1 / order))
                        grad = (inverse @ grad).view(turned) if number < order - 1 else (
                            (grad.t() @ inverse).view(original) if order > 1 else (inverse @ grad).view(original))
                    state["step"] += 1
                    state["momentum_buffer"] = grad
                    p.data.add_(grad, alpha=-group["lr"])

    class Lookahead(by_hand.lookahead(T)):  # type: ignore[misc]
        """As its best known code, with the other's state as an attribute and its gradients in the other's hands."""

        def __init__(self, base: Any):
            super().__init__(base)
            self.fast_state = self.optimizer.state

        def zero_grad(self) -> None:
            self.optimizer.zero_grad()

    found = []
    for make in (lambda ps: AdaBelief(ps, lr=1e-2, weight_decay=0.1), lambda ps: Shampoo(ps),
                 lambda ps: Lookahead(AdaBelief(ps, lr=5e-2))):
        model = lab.same(lab.nn.Sequential(lab.nn.Linear(6, 8), lab.nn.Tanh(), lab.nn.Linear(8, 3)))
        optimizer = make(model.parameters())
        x, y = lab.normal(8, 6), lab.ints(3, 8)

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> Any:
            loss = lab.F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss
        taken = lab.step(step)
        found.append([taken().item() for _ in range(3)])
        if isinstance(optimizer, AdaBelief):
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer.load_state_dict(saved)
            found.append([sorted(saved["state"]), list(saved["state"][0]), saved["state"][0]["exp_avg"].sum().item()])
            found.append(sorted(optimizer.param_groups[0]))
        found.append([taken().item() for _ in range(3)])
    return found


@program
def every_scheduler(lab: Lab) -> Any:
    """Rates of all schedules over ten steps, and the parameter that they make."""
    T, S = lab.T, lab.optim.lr_scheduler
    makers = (lambda o: S.StepLR(o, 3, gamma=0.5), lambda o: S.MultiStepLR(o, milestones=[2, 5]),
              lambda o: S.ExponentialLR(o, 0.9), lambda o: S.CosineAnnealingLR(o, T_max=10, eta_min=1e-3),
              lambda o: S.CosineAnnealingWarmRestarts(o, 4, 2), lambda o: S.LinearLR(o, 0.1, total_iters=4),
              lambda o: S.ConstantLR(o, 0.5, 3), lambda o: S.PolynomialLR(o, 8, 2.0),
              lambda o: S.CyclicLR(o, 0.01, 0.1, 3),
              lambda o: S.OneCycleLR(o, max_lr=0.3, total_steps=12), lambda o: S.MultiplicativeLR(o, lambda i: 0.8),
              lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.7)], milestones=[4]),
              lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.7)]))

    class Warmup(S._LRScheduler):
        def __init__(self, optimizer: Any, total: int, last_epoch: int = -1):
            self.total = total
            super().__init__(optimizer, last_epoch)

        def get_lr(self) -> Any:
            return [base * self.last_epoch / (self.total + 1e-8) for base in self.base_lrs]
    found = []
    for make in (*makers, lambda o: Warmup(o, 6)):
        w = T.ones(3, requires_grad=True)
        optimizer = lab.optim.SGD([w], lr=0.1, momentum=0.5)
        scheduler = make(optimizer)
        for _ in range(10):
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            scheduler.step()
            found.append(optimizer.param_groups[0]["lr"])
        found.append(w)
    w = T.ones(1, requires_grad=True)
    optimizer = lab.optim.SGD([w], lr=1.0)
    plateau = S.ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=1)
    for metric in (1.0, 0.9, 0.95, 0.96, 0.97, 0.5, 0.6, 0.7, 0.8):
        plateau.step(metric)
        found.append(optimizer.param_groups[0]["lr"])
    return found


@program(tolerance_on_a_gpu=2e-2)
def scaled_gradients(lab: Lab) -> Any:
    """GradScaler and autocast as programs have them, for a GPU; on the CPU both are off.

    On a GPU products are of bfloat16, of which each rounds by 2⁻⁹, and ten steps of AdamW add such differences up: of
    gradients that are near 0 each step is as long as of others.
    """
    T = lab.T
    model, device = perceptron(lab), lab.device.type
    optimizer = lab.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = T.amp.GradScaler(device, enabled=device == "cuda")

    @lab.step
    def step(x: Any, y: Any) -> Any:
        with T.amp.autocast(device_type=device, dtype=T.bfloat16, enabled=device == "cuda"):
            loss = lab.F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        T.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss
    return [[step(lab.normal(6, 6), lab.ints(3, 6)).item() for _ in range(10)], scaler.get_scale(),
            scaler.is_enabled()]


@program
def accumulated_gradients(lab: Lab) -> Any:
    """Four small batches a step, a context that does nothing, and a loss that is logged."""
    model = perceptron(lab)
    optimizer = lab.optim.Adam(model.parameters(), lr=1e-2, capturable=False, foreach=None)

    @lab.step
    def micro(x: Any, y: Any) -> Any:
        loss = lab.F.cross_entropy(model(x), y) / 4
        loss.backward()
        return loss.detach()
    found = []
    for _ in range(10):
        total = 0.0
        for _ in range(4):
            total += micro(lab.normal(3, 6), lab.ints(3, 3)).item()
        optimizer.step()
        optimizer.zero_grad()
        found.append(total)
    return found


@program
def checkpoint_and_resume(lab: Lab) -> Any:
    """Model, optimizer and schedule are saved into a buffer and taken up by others."""
    T = lab.T

    def build() -> Any:
        model = perceptron(lab)
        optimizer = lab.optim.AdamW(model.parameters(), lr=1e-2)
        return model, optimizer, lab.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def train(parts: Any, steps: int) -> Any:
        model, optimizer, scheduler = parts

        @lab.step
        def step(x: Any, y: Any) -> Any:
            loss = lab.F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss
        found = []
        for _ in range(steps):
            found.append(step(lab.normal(5, 6), lab.ints(3, 5)).item())
            scheduler.step()
        return found
    first, buffer = build(), io.BytesIO()
    losses = train(first, 5)
    T.save({"epoch": 5, "model": first[0].state_dict(), "optimizer": first[1].state_dict(),
            "scheduler": first[2].state_dict(), "loss": losses[-1]}, buffer)
    buffer.seek(0)
    saved, second = T.load(buffer, map_location="cpu", weights_only=True), build()
    second[0].load_state_dict(saved["model"])
    second[1].load_state_dict(saved["optimizer"])
    second[2].load_state_dict(saved["scheduler"])
    return [losses, saved["epoch"], train(second, 5), second[1].param_groups[0]["lr"]]


@program
def averaged_weights(lab: Lab) -> Any:
    """Stochastic weight averaging, and an exponential average with its own decay."""
    T, nn = lab.T, lab.nn
    swa = T.optim.swa_utils
    model = lab.same(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = lab.optim.SGD(model.parameters(), lr=0.1)
    average = swa.AveragedModel(model)
    ema = swa.AveragedModel(model, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
    scheduler = swa.SWALR(optimizer, swa_lr=0.05, anneal_epochs=3)
    batches = [(lab.normal(6, 6), lab.ints(3, 6)) for _ in range(10)]

    @lab.step
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lab.F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    losses = []
    for i, (x, y) in enumerate(batches):
        losses.append(step(x, y).item())
        ema.update_parameters(model)
        if i >= 4:
            average.update_parameters(model)
            scheduler.step()
    swa.update_bn([x for x, _ in batches], average)
    average.eval()
    ema.eval()
    x = batches[0][0]
    return [losses, average(x), ema(x), average.n_averaged, optimizer.param_groups[0]["lr"]]


@program
def hooks_and_features(lab: Lab) -> Any:
    """Grad-CAM by forward and full backward hooks, a tensor's hook, and features kept by name."""
    T, nn, F = lab.T, lab.nn, lab.F
    model = lab.same(nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                   nn.Linear(4, 3)))
    kept: Any = {}
    handles = [model[0].register_forward_hook(lambda m, args, out: kept.__setitem__("features", out)),
               model[0].register_full_backward_hook(lambda m, gin, gout: kept.__setitem__("grads", gout[0])),
               model[4].register_forward_pre_hook(lambda m, args: (args[0] * 2,))]
    model[4].weight.register_hook(lambda g: g * 0.5)
    x = lab.normal(2, 2, 6, 6)
    scores = model(x)
    scores[range(2), scores.argmax(1)].sum().backward()
    weights = kept["grads"].mean(dim=(2, 3), keepdim=True)
    cam = F.relu((weights * kept["features"]).sum(1))
    cam = (cam - cam.amin((1, 2), keepdim=True)) / (cam.amax((1, 2), keepdim=True) + 1e-8)
    for handle in handles:
        handle.remove()
    return [cam, model[4].weight.grad, model(x), T.allclose(model(x), model(x))]


@program
def distillation(lab: Lab) -> Any:
    """Soft targets at a temperature, a frozen teacher, layers with rates of their own."""
    nn, F, T = lab.nn, lab.F, lab.T
    teacher, student = perceptron(lab).eval(), perceptron(lab)
    optimizer = lab.optim.Adadelta([{"params": student[0].parameters(), "lr": 0.5},
                                    {"params": student[2].parameters()}], lr=1.0)
    heat = 3.0

    @lab.step
    def step(x: Any, y: Any) -> Any:
        with T.no_grad():
            soft = F.softmax(teacher(x) / heat, dim=-1)
        logits = student(x)
        loss = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(logits / heat, dim=-1), soft) * heat**2
        loss = 0.7 * loss + 0.3 * F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(lab.normal(6, 6), lab.ints(3, 6)).item() for _ in range(10)]


@program
def adversarial_examples(lab: Lab) -> Any:
    """The fast gradient sign attack and projected steps, on a model trained meanwhile."""
    F = lab.F
    model = perceptron(lab)
    optimizer = lab.optim.SGD(model.parameters(), lr=0.1)

    def attack(x: Any, y: Any) -> Any:
        delta = lab.T.zeros_like(x, requires_grad=True)
        for _ in range(3):
            F.cross_entropy(model(x + delta), y).backward()
            delta.data = (delta + 0.02 * delta.grad.detach().sign()).clamp(-0.05, 0.05)
            delta.grad.zero_()
        return delta.detach()

    def step(x: Any, y: Any) -> Any:
        data = x.clone().requires_grad_(True)
        model.zero_grad()
        F.cross_entropy(model(data), y).backward()
        fooled = (x + 0.03 * data.grad.data.sign() + attack(x, y)).clamp(-3, 3)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(fooled), y)
        loss.backward()
        optimizer.step()
        return loss
    taken = lab.step(step)
    return [taken(lab.normal(6, 6), lab.ints(3, 6)).item() for _ in range(10)]


@program
def orthogonal_and_spectral(lab: Lab) -> Any:
    """A weight by parametrization, of the user's own and of the library's, trained through."""
    T, nn = lab.T, lab.nn
    parametrize = nn.utils.parametrize

    class Symmetric(nn.Module):
        def forward(self, X: Any) -> Any:
            return X.triu() + X.triu(1).transpose(-1, -2)
    square, old = nn.Linear(5, 5), nn.Linear(5, 4)
    parametrize.register_parametrization(square, "weight", Symmetric())
    old = nn.utils.weight_norm(old)
    model = lab.same(nn.Sequential(square, nn.Tanh(), old))
    optimizer = lab.optim.Adam(model.parameters(), lr=1e-2)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        loss = lab.F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(lab.normal(4, 5), lab.ints(4, 4)).item() for _ in range(10)]
    with parametrize.cached():
        symmetric = T.allclose(square.weight, square.weight.T)
    parametrize.remove_parametrizations(square, "weight")
    return [losses, symmetric, square.weight, math.prod(old.weight_v.shape), sorted(model.state_dict())]
