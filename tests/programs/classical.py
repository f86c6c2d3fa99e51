"""Methods that are older than deep learning, and derivatives used for their own sake."""

from __future__ import annotations

import itertools
import math
from typing import Any

from .lab import Lab, program


@program
def neural_ode(lab: Lab) -> Any:
    """A field integrated by Runge and Kutta's steps; gradients through the integrator."""
    T, nn = lab.T, lab.nn
    field = lab.same(nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 2)))
    A = T.tensor([[-0.1, 2.0], [-2.0, -0.1]])

    def rk4(f: Any, y: Any, times: Any) -> Any:
        found = [y]
        for t0, t1 in itertools.pairwise(times):
            h = t1 - t0
            k1 = f(y)
            k2 = f(y + h * k1 / 2)
            k3 = f(y + h * k2 / 2)
            k4 = f(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            found.append(y)
        return T.stack(found)
    times, start = T.linspace(0.0, 0.5, 6), T.tensor([[2.0, 0.0], [1.0, 1.0]])
    true = rk4(lambda y: T.mm(y**3, A) * 0.1, start, times).detach()
    optimizer = lab.optim.RMSprop(field.parameters(), lr=1e-3)

    @lab.step
    def step() -> Any:
        optimizer.zero_grad()
        loss = T.mean(T.abs(rk4(field, start, times) - true))
        loss.backward()
        optimizer.step()
        return loss
    return [step().item() for _ in range(10)]


@program
def maml(lab: Lab) -> Any:
    """Gradients of an inner step's result: second order, with functional_call."""
    T, nn, F = lab.T, lab.nn, lab.F
    model = lab.same(nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1)))
    meta = lab.optim.Adam(model.parameters(), lr=1e-2)

    @lab.step
    def step(x: Any, y: Any, qx: Any, qy: Any) -> Any:
        total: Any = 0.0
        for i in range(2):
            fast = dict(model.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(T.func.functional_call(model, fast, (x[i],)), y[i])
                grads = T.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {k: p - 0.1 * g for (k, p), g in zip(fast.items(), grads, strict=True)}
            total = total + F.mse_loss(T.func.functional_call(model, fast, (qx[i],)), qy[i])
        meta.zero_grad()
        total.backward()
        meta.step()
        return total
    losses = []
    for _ in range(10):
        x, qx = lab.normal(2, 5, 1), lab.normal(2, 5, 1)
        losses.append(step(x, T.sin(x), qx, T.sin(qx)).item())
    return losses


@program
def physics_informed(lab: Lab) -> Any:
    """u'' + u = 0 by the derivatives of a network with respect to its input."""
    T, nn = lab.T, lab.nn
    net = lab.same(nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)))
    optimizer = lab.optim.Adam(net.parameters(), lr=1e-3)
    x = T.linspace(0, 1, 16).view(-1, 1).requires_grad_(True)

    def gradient(y: Any, x: Any) -> Any:
        return T.autograd.grad(y, x, grad_outputs=T.ones_like(y), create_graph=True)[0]

    @lab.step
    def step() -> Any:
        optimizer.zero_grad()
        u = net(x)
        du = gradient(u, x)
        loss = ((gradient(du, x) + u) ** 2).mean() + (u[0] - 0).pow(2).squeeze() + (du[0] - 1).pow(2).squeeze()
        loss.backward()
        optimizer.step()
        return loss
    return [step().item() for _ in range(10)]


@program(chaotic=True)
def gaussian_process(lab: Lab) -> Any:
    """The marginal likelihood by a Cholesky factor, hyperparameters trained, then a posterior."""
    T = lab.T
    x = T.linspace(0, 1, 12).unsqueeze(-1)
    y = T.sin(x * (2 * math.pi)).squeeze(-1) + 0.1 * lab.normal(12)
    raw = T.nn.Parameter(T.zeros(3))
    optimizer = lab.optim.Adam([raw], lr=0.1)

    def kernel(a: Any, b: Any, length: Any, scale: Any) -> Any:
        return scale * T.exp(-0.5 * T.cdist(a / length, b / length).pow(2))

    @lab.step
    def step() -> Any:
        length, scale, noise = T.nn.functional.softplus(raw)
        L = T.linalg.cholesky(kernel(x, x, length, scale) + (noise + 1e-4) * T.eye(12))
        alpha = T.cholesky_solve(y.unsqueeze(-1), L)
        loss = 0.5 * (y @ alpha).squeeze() + L.diagonal().log().sum() + 6 * math.log(2 * math.pi)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step().item() for _ in range(10)]
    with T.no_grad():
        length, scale, noise = T.nn.functional.softplus(raw)
        K = kernel(x, x, length, scale) + (noise + 1e-4) * T.eye(12)
        mean = kernel(x + 0.05, x, length, scale) @ T.linalg.solve(K, y)
        density = T.distributions.MultivariateNormal(T.zeros(12), covariance_matrix=K).log_prob(y)
    return [losses, mean, density]


@program(quick=True)
def k_means(lab: Lab) -> Any:
    """Lloyd's steps with cdist, scatter and a comparison that ends the loop."""
    T = lab.T
    x = T.cat([lab.normal(15, 2) + shift for shift in (-4.0, 0.0, 4.0)])
    centres, history = x[:3].clone(), []

    @lab.step
    def step(centres: Any) -> Any:
        nearest = T.cdist(x, centres).argmin(dim=1)
        total = T.zeros_like(centres).scatter_add_(0, nearest[:, None].repeat(1, 2), x)
        count = T.bincount(nearest, minlength=3).type_as(x).unsqueeze(1)
        return T.where(count > 0, total / count.clamp(min=1), centres), nearest
    for _ in range(10):
        new, nearest = step(centres)
        moved = (new - centres).norm()
        centres = new
        if moved < 1e-6:  # of sums by atomics, whose order is another in each step, the last bits
            break
        history.append(moved.item())
    return [history, centres, nearest]


@program
def hidden_markov(lab: Lab) -> Any:
    """The forward algorithm in logarithms, trained, then Viterbi's path."""
    T, nn = lab.T, lab.nn
    start, move, emit = nn.Parameter(lab.normal(4)), nn.Parameter(lab.normal(4, 4)), nn.Parameter(lab.normal(4, 6))
    seen = lab.ints(6, 3, 7)
    optimizer = lab.optim.Adam([start, move, emit], lr=0.05)

    @lab.step
    def step(seen: Any) -> Any:
        rows, columns = T.log_softmax(move, 1), T.log_softmax(emit, 1)
        alpha = T.log_softmax(start, 0) + columns[:, seen[:, 0]].t()
        for t in range(1, seen.shape[1]):
            alpha = T.logsumexp(alpha.unsqueeze(2) + rows, dim=1) + columns[:, seen[:, t]].t()
        loss = -alpha.logsumexp(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    losses = [step(seen).item() for _ in range(10)]
    with T.no_grad():
        delta, back = start + emit[:, seen[0, 0]], []
        for t in range(1, 7):
            delta, pointer = T.max(delta.unsqueeze(1) + move, dim=0)
            delta = delta + emit[:, seen[0, t]]
            back.append(pointer)
        path = [int(delta.argmax())]
        for pointer in reversed(back):
            path.append(int(pointer[path[-1]]))
    return [losses, path[::-1]]


@program
def conditional_random_field(lab: Lab) -> Any:
    """The score of a path against the partition function, over padded sentences with a mask."""
    T, nn = lab.T, lab.nn
    lstm, out = lab.same(nn.LSTM(5, 4, bidirectional=True)), lab.same(nn.Linear(8, 3))
    moves = nn.Parameter(lab.normal(3, 3))
    x, tags = lab.normal(6, 2, 5), lab.ints(3, 6, 2)
    mask = T.ones(6, 2, dtype=T.uint8)
    mask[4:, 1] = 0
    optimizer = lab.optim.SGD([*lstm.parameters(), *out.parameters(), moves], lr=0.05, weight_decay=1e-4)

    @lab.step
    def step(x: Any, tags: Any) -> Any:
        emissions, kept = out(lstm(x)[0]), mask.bool()
        batch = T.arange(2)
        score = emissions[0, batch, tags[0]]
        total = emissions[0]
        for i in range(1, 6):
            gain = moves[tags[i - 1], tags[i]] + emissions[i, batch, tags[i]]
            score = score + gain * kept[i].type_as(gain)
            after = T.logsumexp(total.unsqueeze(2) + moves + emissions[i].unsqueeze(1), dim=1)
            total = T.where(kept[i].unsqueeze(1), after, total)
        loss = (T.logsumexp(total, dim=1) - score).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return [step(x, tags).item() for _ in range(10)]


@program
def matrix_factorization(lab: Lab) -> Any:
    """Ratings from biases and factors; rows are drawn by index, the mean is a buffer."""
    T, nn = lab.T, lab.nn

    class MF(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.P, self.Q = nn.Embedding(10, 4), nn.Embedding(12, 4)
            self.user_bias, self.item_bias = nn.Embedding(10, 1), nn.Embedding(12, 1)
            self.mean = nn.Buffer(T.tensor(3.5))

        def forward(self, user: Any, item: Any) -> Any:
            bias = T.squeeze(self.user_bias(user)) + T.squeeze(self.item_bias(item)) + self.mean
            return (self.P(user) * self.Q(item)).sum(1) + bias
    model = lab.same(MF())
    optimizer = lab.optim.Adamax(model.parameters(), lr=0.05)

    @lab.step
    def step(user: Any, item: Any, rating: Any) -> Any:
        optimizer.zero_grad()
        loss = T.sqrt(nn.MSELoss()(model(user, item), rating)) + 1e-3 * sum(p.norm(p=2) for p in model.parameters())
        loss.backward()
        optimizer.step()
        return loss
    return [[step(lab.ints(10, 9), lab.ints(12, 9), lab.uniform(9) * 5).item() for _ in range(10)],
            sorted(model.state_dict())]


@program
def mixture_of_gaussians(lab: Lab) -> Any:
    """A density network: the likelihood of a MixtureSameFamily."""
    _T, nn, D = lab.T, lab.nn, lab.T.distributions
    net = lab.same(nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 9)))
    optimizer = lab.optim.Adam(net.parameters(), lr=1e-2)

    @lab.step
    def step(x: Any, y: Any) -> Any:
        logits, mean, raw = net(x).split(3, dim=-1)
        mixture = D.MixtureSameFamily(D.Categorical(logits=logits), D.Normal(mean, raw.exp()))
        loss = -mixture.log_prob(y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, mixture.mean.mean(), mixture.variance.mean()
    return [step(lab.normal(12, 1), lab.normal(12)) for _ in range(10)]
