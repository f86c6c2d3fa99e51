"""Programs at numerical corners: matrices that fail, weights that stay rotations, tables of few rows, frozen layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .lab import Lab, program


@program(chaotic=True)
def laplace_classifier(lab: Lab) -> Any:
    """A Gaussian process that classifies: Newton's steps, a Cholesky decomposition that is tried with more and more on
    the diagonal until it succeeds, and the pseudoinverse where a matrix is singular."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Kernel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_scale, self.log_length = nn.Parameter(T.zeros(())), nn.Parameter(T.tensor(0.5))

        def forward(self, a: Any, b: Any) -> Any:
            return self.log_scale.exp() * T.exp(-0.5 * T.cdist(a, b).pow(2) / self.log_length.exp() ** 2)
    kernel, tries = lab.same(Kernel()), []

    def safe_cholesky(A: Any, jitter: float = 1e-3, most: int = 5) -> Any:
        for number in range(most):
            try:
                found = T.linalg.cholesky(A + (jitter * 10**number if number else 0.0) * T.eye(len(A)))
                tries.append(number)
                return found
            except T.linalg.LinAlgError:
                continue
        raise RuntimeError(f"not positive definite with {jitter * 10**most} on the diagonal")

    def newton_step(hessian: Any, gradient: Any) -> Any:
        try:
            return T.linalg.solve(hessian, gradient)
        except RuntimeError as error:
            assert "singular" in str(error)
            return T.linalg.pinv(hessian) @ gradient

    def mode(K: Any, y: Any) -> Any:
        f = T.zeros(len(y))
        for _ in range(4):
            p = T.sigmoid(f)
            root = T.sqrt(p * (1 - p))
            L = safe_cholesky(T.eye(len(y)) + root[:, None] * K * root)
            b = p * (1 - p) * f + y - p
            f = K @ (b - root * T.cholesky_solve((root * (K @ b))[:, None], L).squeeze(1))
        return f, L
    x = T.cat([lab.normal(9, 2), T.zeros(3, 2)])  # three equal rows: the kernel is singular
    y = (x[:, 0] + x[:, 1] > 0).to(x.dtype)
    optimizer = lab.optim.Adam(kernel.parameters(), lr=0.1)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        K = kernel(x, x)
        f, L = mode(K, y)
        prior = safe_cholesky(K - 0.05 * T.eye(len(y)))  # as if rounding had been that large
        alpha = T.linalg.solve_triangular(prior, f[:, None], upper=False)
        loss = 0.5 * alpha.pow(2).sum() + F.softplus((1 - 2 * y) * f).sum() + L.diagonal().log().sum()
        optimizer.zero_grad()
        loss.backward()
        for p in kernel.parameters():
            p.grad.clamp_(-1.0, 1.0)
        optimizer.step()
        return loss.detach(), kernel.log_length.detach().clone()
    found = [step(x, y) for _ in range(5)]
    singular = T.tensor([[1.0, 2.0], [2.0, 4.0]])
    return found, tries, newton_step(singular, T.ones(2)), newton_step(singular + T.eye(2), T.ones(2))


@program(chaotic=True)
def orthogonal_recurrence(lab: Lab) -> Any:
    """Recurrent weights on the rotations, by each map, around a start and not; the optimizer is made first."""
    T, nn, F = lab.T, lab.nn, lab.F
    orthogonal = nn.utils.parametrizations.orthogonal

    class Cell(nn.Module):
        def __init__(self, how: str, trivialized: bool) -> None:
            super().__init__()
            self.inside, self.outside = nn.Linear(3, 5), nn.Linear(5, 5, bias=False)
            self.how, self.trivialized = how, trivialized
            self.bias = nn.Parameter(T.zeros(5))

        def constrain(self) -> None:
            orthogonal(self.outside, orthogonal_map=self.how, use_trivialization=self.trivialized)

        def forward(self, steps: Any) -> Any:
            h = steps.new_zeros(steps.shape[1], 5)
            with nn.utils.parametrize.cached():
                for x in self.inside(steps):
                    z = x + self.outside(h)
                    h = z.sign() * F.relu(z.abs() + self.bias)
            return h
    found: list[Any] = []
    for how, trivialized in (("cayley", True), ("cayley", False), ("matrix_exp", True), ("householder", False)):
        cell = lab.same(Cell(how, trivialized))
        head = lab.same(nn.Linear(5, 2))
        optimizer = lab.optim.RMSprop([*cell.parameters(), *head.parameters()], lr=0.01)
        cell.constrain()

        @lab.step
        def step(steps: Any, target: Any) -> Any:
            loss = F.cross_entropy(head(cell(steps)), target)  # noqa: B023 (called in this turn)
            optimizer.zero_grad()  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss
        found += [step(lab.normal(6, 4, 3), lab.ints(2, 4)) for _ in range(6)]
        found += [cell.outside.weight, (cell.outside.weight @ cell.outside.weight.T).round(decimals=6)]
    return found


@program
def graph_walks(lab: Lab) -> Any:
    """node2vec: skip-grams of random walks, embeddings with few rows a step under SparseAdam, negatives."""
    T, nn = lab.T, lab.nn
    neighbours = [lab.draws.choice(12, 3, replace=False) for _ in range(12)]

    class Walks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(12, 4, sparse=True)

        def loss(self, positive: Any, negative: Any) -> Any:
            total = 0.0
            for walks, sign in ((positive, 1), (negative, -1)):
                start, rest = walks[:, 0], walks[:, 1:].contiguous()
                h_start = self.embedding(start).view(walks.size(0), 1, 4)
                h_rest = self.embedding(rest.view(-1)).view(walks.size(0), -1, 4)
                total = total - nn.functional.logsigmoid(sign * (h_start * h_rest).sum(dim=-1).view(-1)).mean()
            return total
    model = lab.same(Walks())
    optimizer = lab.optim.SparseAdam(list(model.parameters()), lr=0.05)

    def sample(nodes: Any) -> tuple[Any, Any]:
        walks = [[n] for n in nodes]
        for walk in walks:
            for _ in range(3):
                walk.append(int(lab.draws.choice(neighbours[walk[-1]])))
        negative = np.concatenate([np.asarray(nodes)[:, None], lab.draws.integers(0, 12, (len(nodes), 3))], 1)
        return T.tensor(walks), T.tensor(negative)

    @lab.step
    def step(positive: Any, negative: Any) -> Any:
        optimizer.zero_grad()
        loss = model.loss(positive, negative)
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(*sample(lab.draws.choice(12, 2, replace=False).tolist())).item() for _ in range(10)]
    state = optimizer.state[model.embedding.weight]
    return losses, model.embedding.weight, state["exp_avg"], state["step"]


@program
def fine_tuning(lab: Lab) -> Any:
    """A backbone that stays as it is, random Fourier features among the parameters, all of them given to Adam; then
    one more layer thaws, at a lower rate."""
    T, nn, F = lab.T, lab.nn, lab.F

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frequencies = nn.Parameter(T.zeros(1, 4), requires_grad=False)

        def forward(self, t: Any) -> Any:
            angles = t[:, None] * self.frequencies * 2 * np.pi
            return T.cat([angles.sin(), angles.cos()], dim=-1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.time, self.head = Features(), nn.Linear(16, 3)
            self.backbone = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Conv1d(4, 8, 3), nn.AdaptiveAvgPool1d(1))
            self.unused = nn.Linear(2, 2)

        def forward(self, x: Any, t: Any) -> Any:
            return self.head(T.cat([self.backbone(x).flatten(1), self.time(t)], 1))
    net = lab.same(Net())
    for p in net.backbone.parameters():
        p.requires_grad = False
    optimizer = lab.optim.Adam([{"params": net.backbone.parameters(), "lr": 1e-3},
                                {"params": [p for n, p in net.named_parameters() if not n.startswith("backbone")]}],
                               lr=1e-2)

    @lab.step
    def step(x: Any, t: Any, y: Any) -> Any:
        loss = F.cross_entropy(net(x, t), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = []
    for epoch in range(12):
        if epoch == 6:
            net.backbone[2].requires_grad_(True)
        losses.append(step(lab.normal(5, 2, 9), lab.uniform(5), lab.ints(3, 5)))
    trained = sorted(n for n, p in net.named_parameters() if p.grad is not None)
    return losses, list(net.parameters()), trained


@program
def factorization_machine(lab: Lab) -> Any:
    """A deep factorization machine: fields' offsets in one table are an array of numpy's, crosses, Adagrad, and the
    area under the curve by hand."""
    T, nn = lab.T, lab.nn
    sizes = np.array([5, 7, 4])

    class Table(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.rows = nn.Embedding(int(sum(sizes)), width)
            self.offsets = np.array((0, *np.cumsum(sizes)[:-1]), dtype=np.int64)
            self.scale = np.float32(1 / math.sqrt(width))

        def forward(self, x: Any) -> Any:
            return self.rows(x + x.new_tensor(self.offsets).unsqueeze(0)) * float(self.scale)

    class Machine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.table, self.bias = Table(1), Table(4), nn.Parameter(T.zeros((1,)))
            self.crosses = nn.ParameterList([nn.Parameter(T.zeros((12,))) for _ in range(4)])
            self.deep = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))

        def forward(self, x: Any) -> Any:
            fields = self.table(x)
            flat = fields.view(-1, 12)
            pairs = fields.sum(1).pow(2) - fields.pow(2).sum(1)
            crossed = flat
            for w, b in zip(self.crosses[::2], self.crosses[1::2], strict=True):
                crossed = flat * (crossed @ w).unsqueeze(1) + b + crossed
            logits = self.linear(x).sum(1) + self.bias + 0.5 * pairs.sum(1, keepdim=True) + self.deep(flat)
            return T.sigmoid(logits.squeeze(1) + crossed.mean(1))
    model, criterion = lab.same(Machine()), nn.BCELoss()
    optimizer = lab.optim.Adagrad(model.parameters(), lr=0.05, weight_decay=1e-5, initial_accumulator_value=0.1)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        p = model(x)
        loss = criterion(p, y.to(p.dtype))
        model.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, p.detach()
    x, y = T.cat([lab.ints(int(n), 20, 1) for n in sizes], 1), lab.uniform(20) > 0.5
    found = [step(x, y) for _ in range(10)]
    order = T.argsort(found[-1][1], descending=True)
    hits, misses = T.cumsum(y[order].long(), 0), T.cumsum(1 - y[order].long(), 0)
    return found, T.trapezoid(hits / hits[-1], misses / misses[-1])
