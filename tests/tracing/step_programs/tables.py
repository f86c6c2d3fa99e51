"""The building blocks of random training steps: each row is a line or two of source, with how often it is drawn.

`S` is the object that keeps the state of a program, `{o}` one of its optimizers, `{k}` a small number.
"""

from __future__ import annotations

SETUP = """import collections, copy, math
import numpy as np
from tests.tracing.step_programs.show import bits
nn = genesis.nn
F = nn.functional
class Sign(genesis.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.scale = S.scale
        return x.sign()
    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * (x.abs() <= 1).float() * ctx.scale
class Meter:
    def __init__(self):
        self.value = self.total = self.mean = 0.0
        self.count = 0
    def update(self, value, n=1):
        self.value = value
        self.total += value * n
        self.count += n
        self.mean = self.total / self.count
@dataclasses.dataclass
class Batch:
    x: typing.Any
    weight: float = 1.0
@dataclasses.dataclass
class Other(Batch):
    pass
class Plain:
    def __init__(self, x, weight=1.0):
        self.x, self.weight = x, weight
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)
        self.register_buffer('seen', genesis.zeros(4))
        self.register_buffer('turns', genesis.zeros((), dtype=genesis.int64))
        self.scale, self.state, self.calls, self.deep = 1.0, None, 0, True
    def forward(self, x):
        self.calls += 1
        h = self.first(x)
        if self.deep:
            h = self.norm(h)
        return self.last(h.relu()) * self.scale
def batch(i, size=6):
    rng = np.random.default_rng(i)
    return genesis.tensor(rng.standard_normal((size, 4), dtype=np.float32)), genesis.tensor(rng.integers(0, 3, size))
class Trainer:
    pass
S = Trainer()
S.net, S.other = Net(), nn.Sequential(nn.Linear(4, 3))
S.calls, S.scale, S.rate, S.turn, S.bomb, S.flag, S.every = 0, 1.0, 0.1, 0, False, False, 3
S.total, S.hidden, S.last, S.best, S.view = 0.0, None, None, None, None
S.loss, S.sum, S.seen = 0.0, 0.0, 0
S.log, S.losses, S.recent = [], [], collections.deque([1.0, 2.0], maxlen=3)
S.metrics, S.items, S.cache = collections.defaultdict(list), {{'loss': 0.0}}, {{}}
S.meter, S.memory = Meter(), batch(99, 20)[0]
S.means = [genesis.zeros_like(p) for p in S.net.parameters()]
S.average = copy.deepcopy(S.net)
S.sgd = genesis.optim.SGD(S.net.parameters(), lr=0.1, momentum=0.9)
S.adam = genesis.optim.AdamW(S.net.parameters(), lr=0.01)
S.more = genesis.optim.SGD(S.other.parameters(), lr=0.1)
S.schedule = genesis.optim.lr_scheduler.StepLR(S.sgd, 2, 0.5)
S.pool = [genesis.zeros(2, 3), genesis.ones(2, 3)]
results = []
def call(*arguments, **named):
    try:
        results.append(step(*arguments, **named))
    except Exception as error:
        note(type(error).__name__)
def weights():
    return [*S.net.parameters(), *S.other.parameters()]
def look():
    note(bits([weights(), [p.grad for p in weights()], vars(S), S.sgd.state_dict(), S.adam.state_dict()]))
def read(at):
    if results:
        note(bits(results[at % len(results)]))
"""

FORMS = {
    "def run(x, y, flag=False, more=None):\n{body}\nstep = compiled(run)": 4,
    "def run(S, x, y, flag=False, more=None):\n{body}\nTrainer.step = run\nstep = compiled(S.step)": 3,
    "class Sub(Trainer):\n    def step(self, x, y, flag=False, more=None):\n        S = self\n{deep}\n"
    "S.__class__ = Sub\nstep = compiled(S.step)": 1,
}

CONDITIONS = {
    "S.calls % {k} == 0": 5, "flag": 4, "S.flag": 2, "more is not None": 2, "S.turn % 2": 2, "x.shape[0] > 4": 2,
    "isinstance(more, Batch)": 1, "S.items": 1, "S.hidden is not None": 1, "len(S.losses) % 3 == 1": 1,
    "S.net.training": 1, "S.every and S.calls % S.every == 1": 1,
}

FIRST = {
    "S.calls += 1": 8,
    "S.turn = S.turn + 1": 2,
    "for group in {o}.param_groups:\n    group['lr'] = 0.1 * min(1.0, (S.calls + 1) / 5)": 3,
    "for group in {o}.param_groups:\n    group['lr'] = S.rate": 2,
    "{o}.param_groups[0]['lr'] = 0.01 + 0.05 * (1 + math.cos(math.pi * S.turn / 10))": 2,
    "x = x.reshape(x.shape[0], int(np.prod(x.shape[1:])))": 1,
    "x = x * float(np.sqrt(x.shape[1]))": 1,
    "x = x + (more.x if hasattr(more, 'x') else 0)": 2,
    "if isinstance(more, (Batch, Plain)):\n    x = x * more.weight": 2,
    "if isinstance(more, list):\n    x = x + sum(part.sum() for part in more)": 2,
    "if isinstance(more, dict):\n    x = x * more['x'] if 'x' in more else x": 2,
    "S.net.train()": 1, "S.net.eval()": 1,
    "for p in S.other.parameters():\n    p.requires_grad_(not flag)": 1,
    "S.rate *= 0.9": 2,
    "S.seen += len(x)": 1,
    "S.view = x[1:3]": 1,
    "S.losses.clear()": 1,
    "x = genesis.dropout(x, 0.2, True)": 1,
}

FORWARD = {
    "out = S.net(x)": 8,
    "out = S.net(x) + S.other(x)": 3,
    "out = S.other(Sign.apply(x * S.other[0].weight[0]))": 2,
    "out = S.net(x)\nif S.hidden is not None:\n    out = out + S.hidden.mean()\nS.hidden = out.detach()": 2,
    "out = S.net(x) + S.items.get('state', 0.0)\nS.items['state'] = out.detach().mean()": 2,
    "out = S.net(genesis.cat([x[:2], x[2:]]))": 1,
    "out = S.net(S.memory[S.turn % 8:S.turn % 8 + x.shape[0]] + x)": 1,
    "out = S.net(x * S.cache.setdefault('scale', genesis.ones(4)))": 1,
}

LOSS = {
    "loss = F.cross_entropy(out, y)": 8,
    "loss = F.cross_entropy(out, y) / S.every": 2,
    "loss = F.cross_entropy(out, y) * (2 if flag else 1)": 1,
    "loss = F.cross_entropy(out, y) + 0.01 * sum(p.square().sum() for p in S.net.parameters())": 1,
    "loss = F.multi_margin_loss(out, y)": 1,
}

BACKWARD = {
    "loss.backward()": 8,
    "if not flag:\n    loss.backward()": 1,
    "(loss / 2).backward(retain_graph=True)\n(loss / 2).backward()": 1,
    "for p, g in zip(S.net.parameters(), genesis.autograd.grad(loss, list(S.net.parameters()), allow_unused=True)):\n"
    "    p.grad = g": 1,
    "for p, g in zip(S.net.parameters(), genesis.autograd.grad(loss, list(S.net.parameters()), allow_unused=True)):\n"
    "    if g is not None:\n        p.grad = g if p.grad is None else p.grad + g": 1,
}

ZERO = {"{o}.zero_grad()": 6, "{o}.zero_grad(set_to_none=False)": 1, "S.net.zero_grad()": 1,
        "for p in S.net.parameters():\n    p.grad = None": 1}

UPDATE = {
    "{o}.step()": 8,
    "{o}.step()\n{o}.zero_grad()": 4,
    "(S.sgd if S.calls % 2 else S.adam).step()": 2,
    "{o}.step()\nS.more.step()": 2,
    "S.sgd.step()\nS.schedule.step()": 2,
    "with genesis.no_grad():\n    for p in S.net.parameters():\n        if p.grad is not None:\n"
    "            p -= 0.1 * p.grad": 2,
    "with genesis.no_grad():\n    for p, m in zip(S.net.parameters(), S.means):\n        if p.grad is not None:\n"
    "            m.mul_(0.9).add_(p.grad, alpha=0.1)\n            p.sub_(m / (1 - 0.9 ** (S.turn + 1)))": 2,
}

BETWEEN = {
    "nn.utils.clip_grad_norm_(S.net.parameters(), 1.0)": 3,
    "S.last = [p.grad for p in S.net.parameters()]": 1,
    "S.items['grad'] = S.net.first.weight.grad": 1,
    "S.last = loss": 1,
    "S.view = S.net.last.weight[0]": 1,
    "S.pool[0] = out.detach()[:2]": 1,
    "for p in S.net.parameters():\n    if p.grad is not None:\n        p.grad.mul_(0.5)": 1,
    "if S.bomb:\n    raise ValueError('here')": 3,
    "x = x.reshape(-1, 8)": 0.2,
}

LAST = {
    "S.losses.append(loss.item())": 4,
    "S.log.append((S.calls, loss.item()))": 2,
    "S.log.append(loss.detach())": 2,
    "S.recent.append(loss.item())": 3,
    "S.recent.append(loss.detach())": 1,
    "S.metrics['loss'].append(loss.item())": 2,
    "S.metrics['right'].append((out.argmax(-1) == y).float().mean().item())": 2,
    "S.items['loss'] = loss.item()": 3,
    "S.items['mean'] = loss.item() / len(x)": 1,
    "S.items['last'] = loss.detach()": 2,
    "S.items[S.calls % 2] = loss.detach()": 1,
    "S.meter.update(loss.item(), len(x))": 3,
    "S.meter.update(loss.item())": 2,
    "S.total += loss.detach() * len(x)": 3,
    "S.total = S.total * 0.9 + loss.detach()": 2,
    "S.sum += loss.item() * len(x)": 2,
    "S.loss = loss.item()": 3,
    "S.loss = round(loss.item(), 3)": 1,
    "S.loss = float(loss)": 1,
    "S.seen += len(x)": 2,
    "S.seen += 1": 2,
    "S.turn += 1": 3,
    "S.calls += 1": 2,
    "S.flag = not S.flag": 1,
    "S.every = 2 + S.calls % 2": 1,
    "S.rate = S.rate * 0.9": 2,
    "S.scale = 2.0 if flag else 1.0": 1,
    "S.net.scale *= 1.01": 1,
    "S.net.deep = not S.net.deep": 1,
    "S.hidden = out.detach()": 1,
    "S.hidden = None": 1,
    "S.view = S.pool[0][1]": 1,
    "with genesis.no_grad():\n    S.pool[0].add_(1.0)": 1,
    "S.pool.append(S.pool.pop(0))": 1,
    "S.pool[0], S.pool[1] = S.pool[1], S.pool[0]": 1,
    "S.net.seen.add_(x.mean(0))": 2,
    "S.net.seen = S.net.seen * 0.9 + x.mean(0)": 2,
    "S.net.turns += 1": 2,
    "S.net.state = out.detach()": 1,
    "with genesis.no_grad():\n    for a, p in zip(S.average.parameters(), S.net.parameters()):\n"
    "        a.mul_(0.9).add_(p, alpha=0.1)": 2,
    "for a, p in zip(S.average.parameters(), S.net.parameters()):\n    a.data.copy_(p)": 1,
    "S.last = [p.detach().clone() for p in S.net.parameters()]": 1,
    "S.last = list(S.net.parameters())": 1,
    "if S.best is None:\n    S.best = loss.detach()\nelse:\n    S.best = genesis.minimum(S.best, loss.detach())": 2,
    "S.items.pop('gone', None)": 1,
    "del S.losses[:-2]": 1,
    "S.cache[x.shape] = loss.detach()": 1,
    "x.mul_(0.5)": 0.3,
    "S.memory[S.turn % 4] = x[0]": 2,
    "S.memory = genesis.cat([S.memory[1:], x[:1]])": 2,
    "{o}.param_groups[0]['lr'] *= 0.9": 2,
    "{o}.param_groups[0]['lr'] = S.rate": 2,
    "S.items['lr'] = {o}.param_groups[0]['lr']": 1,
    "if hasattr(more, 'weight'):\n    more.weight += 1": 1,
    "if isinstance(more, dict):\n    more['seen'] = loss.detach()": 1,
    "if isinstance(more, list):\n    more.append(loss.detach())": 1,
    "if S.bomb:\n    raise ValueError('here')": 3,
    "for p in S.net.parameters():\n    p.grad = None": 1,
    "S.net.first.weight.data.clamp_(-1, 1)": 1,
}

RESULTS = {
    "loss": 2, "loss.detach()": 8, "loss.item()": 12, "None": 6, "out": 0.5, "out.detach()": 2, "S.total": 2,
    "S.loss": 1,
    "S.meter.mean": 0.5, "S.calls": 1, "{{'loss': loss.item(), 'rate': S.rate}}": 2, "Batch(loss.detach(), S.rate)": 2,
    "Plain(loss.detach(), S.calls)": 2, "(loss.item(), (out.argmax(-1) == y).sum().item())": 2, "S.pool": 0.3,
    "S.net.first.weight[0]": 0.3, "S.net.first.weight.grad": 0.3, "more": 0.3, "x[1:]": 0.2, "S.hidden": 1,
    "1 - loss.item()": 1,
    "S.losses": 0.5, "S.items": 0.5, "S.best": 0.5, "S.net": 0.2, "[p.grad for p in S.net.parameters()]": 0.5,
    "loss.tolist()": 1, "round(p.norm().item(), 3) if (p := S.net.first.weight.grad) is not None else None": 1,
    "{{n: p.norm().item() for n, p in S.net.named_parameters()}}": 1,
}

XS = {
    "*batch({i})": 30, "*batch({i}, 4)": 4, "*batch({i}, 2)": 1, "*batch({i}, 1)": 0.5, "*fixed": 3,
    "S.memory[:6], fixed[1]": 2, "S.memory[{k}:{k} + 6], fixed[1]": 2, "fixed[0].clone(), fixed[1]": 1,
    "columns.t(), fixed[1]": 1, "S.net.first.weight[:, :4], batch({i}, 5)[1]": 2,
    "S.net.first.weight.detach(), batch({i}, 5)[1]": 2, "S.net.first.weight, batch({i}, 5)[1]": 1,
    "S.other[0].weight.data, batch({i}, 3)[1]": 1, "batch({i})[0].requires_grad_(), batch({i})[1]": 1,
    "batch({i})[0][::2].expand(3, 4), batch({i}, 3)[1]": 1, "fixed[0][:1].expand(6, 4), fixed[1]": 1,
    "fixed[0].double().float(), fixed[1].int().long()": 1, "batch({i})[0][:, None].squeeze(1), batch({i})[1]": 1,
    "S.net.seen.expand(6, 4), fixed[1]": 1,
}
"""The arguments x and y."""

FLAGS = {"": 12, "True": 3, "False": 2, "{i} % 2 == 0": 4, "{i} % 3 == 0": 2, "1": 1, "None": 1}
MORES = {
    "": 20, "more=None": 2, "more=genesis.ones(4)": 1, "more=Batch(genesis.ones(4), {k} / 2)": 3,
    "more=Other(genesis.ones(4), {k} / 2)": 1, "more=Plain(genesis.ones(4), {k})": 2, "more=[fixed[0], fixed[0]]": 1,
    "more=[fixed[0][{k}:{k} + 2], fixed[0]]": 1, "more={{'x': genesis.ones(4)}}": 1, "more={{}}": 1, "more=S.items": 1,
    "more=S.pool": 1, "more=held": 3, "more=S.losses": 1, "more={k}": 1, "more=S": 0.3,
}

EVENTS = {
    "look()": 8,
    "read({k})": 4,
    "results.clear()": 1,
    "S.sgd.param_groups[0]['lr'] = 0.{k}": 2,
    "S.adam.param_groups[0]['weight_decay'] = 0.{k}": 1,
    "S.sgd.param_groups[0]['momentum'] = 0.0": 1,
    "S.sgd.param_groups[0]['nesterov'] = True": 0.5,
    "S.sgd.zero_grad()": 1,
    "for p in S.net.parameters():\n    p.grad = None": 1,
    "for p in S.net.parameters():\n    p.grad = genesis.ones_like(p)": 1,
    "S.net.first.weight.grad = genesis.ones(5, 4)": 1,
    "big = genesis.ones(8, 4)\nS.net.first.weight.grad = big[:5]": 1,
    "if S.net.last.bias.grad is not None:\n    S.net.last.bias.grad.zero_()": 1,
    "S.net.last.bias.grad = S.net.last.bias.detach()": 1,
    "kept = [p.grad for p in S.net.parameters()]\nresults.append(kept)": 1,
    "with genesis.no_grad():\n    S.net.last.bias.add_(1)": 1,
    "S.net.last.bias.data = genesis.zeros(3)": 1,
    "S.net.last.weight.data.mul_(0.5)": 1,
    "S.net.seen.fill_(2.0)": 1,
    "S.net.seen = genesis.ones(4)": 1,
    "S.net.norm = nn.Identity()": 1,
    "S.net.norm = nn.LayerNorm(5)": 1,
    "S.net.last = nn.Linear(5, 3)": 0.5,
    "S.net.deep = not S.net.deep": 1,
    "S.net.scale = {k} / 2": 1,
    "S.net.eval()": 1,
    "S.net.train()": 1,
    "S.net.first.bias.requires_grad_(False)": 1,
    "S.net.requires_grad_(True)": 1,
    "S.net.first.requires_grad_({k} % 2 == 0)": 1,
    "handle = S.net.register_forward_hook(lambda m, a, out: out * 2)": 0.5,
    "if 'handle' in globals():\n    handle.remove()": 0.5,
    "S.net.last.bias.register_hook(lambda g: g * 2)": 0.3,
    "S.items.clear()": 1,
    "S.items.pop('loss', None)": 1,
    "S.items['state'] = 0.5": 1,
    "S.items = {{}}": 1,
    "S.losses.clear()": 1,
    "S.losses = []": 1,
    "S.losses.extend([1.0, 2.0])": 1,
    "S.log = S.losses": 0.5,
    "S.metrics.clear()": 1,
    "S.metrics['loss'] = S.losses": 0.5,
    "S.recent = collections.deque([3.0], maxlen={k})": 1,
    "S.recent.clear()": 1,
    "S.recent = []": 0.5,
    "S.meter = Meter()": 1,
    "S.meter.total = 5": 1,
    "S.meter.total = genesis.ones(())": 0.5,
    "S.total = 0.0": 2,
    "S.total = genesis.zeros(())": 1,
    "S.total = 0": 1,
    "S.sum = 0": 1,
    "S.sum = genesis.zeros(())": 0.5,
    "S.hidden = None": 1,
    "S.hidden = genesis.ones(6, 3)": 1,
    "S.best = None": 1,
    "S.calls = 0": 1,
    "S.calls += {k}": 1,
    "S.calls = float(S.calls)": 0.5,
    "S.turn = {k}": 1,
    "S.rate = 0.{k}": 1,
    "S.every = {k}": 1,
    "S.flag = not S.flag": 1,
    "S.scale = {k} / 4": 1,
    "S.bomb = not S.bomb": 1,
    "S.bomb = True\ncall(*batch({i}))\nS.bomb = False": 2,
    "call(*batch({i}, 3)[:1], batch({i}, 4)[1])": 0.5,
    "S.pool[0] = S.net.first.weight": 0.5,
    "S.pool[1] = S.pool[0]": 1,
    "S.pool.reverse()": 1,
    "S.average = S.net": 0.3,
    "S.average = copy.deepcopy(S.net)": 1,
    "S.memory = batch({k}, 20)[0]": 1,
    "S.means = [genesis.zeros_like(p) for p in S.net.parameters()]": 1,
    "S.means[0] = S.means[1]": 0.2,
    "S.cache.clear()": 1,
    "held.weight += 1": 1,
    "held.x = genesis.zeros(4)": 1,
    "held.__class__ = Other": 0.5,
    "S.sgd.load_state_dict(copy.deepcopy(S.sgd.state_dict()))": 1,
    "S.net.load_state_dict(copy.deepcopy(S.net.state_dict()))": 1,
    "S.sgd = genesis.optim.SGD(S.net.parameters(), lr=0.1)": 1,
    "S.adam = genesis.optim.AdamW(S.net.parameters(), lr=0.02)": 1,
    "S.adam.state.clear()": 1,
    "genesis.manual_seed({k})": 1,
    "fixed[0].add_(1)": 1,
    "with genesis.no_grad():\n    call(*batch({i}))": 1,
    "if results and isinstance(results[-1], genesis.Tensor) and results[-1].requires_grad:\n"
    "    results[-1].sum().backward()": 1,
    "if isinstance(S.total, genesis.Tensor):\n    S.total.zero_()": 1,
    "if isinstance(S.last, genesis.Tensor):\n    S.last.detach().add_(1)": 1,
    "if S.view is not None:\n    S.view.data.add_(1)": 1,
    "if results and isinstance(results[-1], genesis.Tensor):\n    results[-1].detach().mul_(2)": 1,
}

WRITTEN = """class Hand(genesis.optim.Optimizer):
    def __init__(self, params, lr=0.01):
        super().__init__(params, dict(lr=lr, betas=(0.9, 0.99)))
        self.decay, self.calls = 0.01, 0
    @genesis.no_grad()
    def step(self, closure=None):
        self.calls += 1
        for group in self.param_groups:
            beta1, beta2 = group['betas']
            for p in group['params']:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state['step'] = 0
                    state['mean'] = genesis.zeros_like(p)
                    state['last'] = p.grad.clone()
                state['step'] += 1
                state['mean'].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state['last'] = (state['last'] * beta2 + p.grad).view(p.shape)
                p.mul_(1 - group['lr'] * self.decay)
                p.add_(state['mean'] + state['last'] * 0.1, alpha=-group['lr'] / (1 - beta1 ** state['step']))
S.adam = Hand(S.net.parameters())"""
"""An optimizer as people write them."""

WRITTEN_EVENTS = (
    "S.adam.decay *= 2",
    "S.adam.calls = 7",
    "S.adam.param_groups[0]['lr'] *= 0.5",
    "S.adam.param_groups[0]['betas'] = (0.5, 0.9)",
    "for state in S.adam.state.values():\n    state['last'] = genesis.ones_like(state['last'])",
    "for state in S.adam.state.values():\n    state['mean'].mul_(0.5)",
    "for state in S.adam.state.values():\n    state['step'] = 3",
    "S.adam.state.pop(S.net.first.weight, None)",
    "S.adam.state[S.net.first.weight].clear()",
    "S.adam.load_state_dict(copy.deepcopy(S.adam.state_dict()))",
    "S.adam = Hand(S.net.parameters(), lr=0.02)",
    "S.last = S.adam.state[S.net.last.bias].get('last')",
    "if 'last' in S.adam.state[S.net.last.bias]:\n    S.adam.state[S.net.last.bias]['last'] = S.net.last.bias.detach()",
)
"""What a program does to it between calls."""
