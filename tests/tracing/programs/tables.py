"""The building blocks of random programs of `genesis.compile`: each row is a line or two of source.

`{a}` and `{b}` stand for tensors that the function has at that place, `{t}` for a new name, `{r}` for the result of an
earlier call, `{s}` for an argument. A row's number is how often it is drawn beside the others of its table.
"""

from __future__ import annotations

PIECES = {
    "w": "w = ramp(3).requires_grad_()",
    "v": "v = ramp(3, start=0.5).requires_grad_()",
    "m": "m = (ramp(3, 3) / 9).requires_grad_()",
    "k": "k = ramp(3, start=2.0)",
    "x0": "x0 = ramp(2, 3)",
    "x1": "x1 = ramp(2, 3, start=-2.0).requires_grad_()",
    "x2": "x2 = ramp(3, start=-1.0)",
    "ema": "ema = genesis.zeros(3)",
    "FACTOR": "FACTOR = 2.0",
    "LEVEL": "LEVEL = 2.0",
    "TABLE": "TABLE = [1.0, 2.0]",
    "SETTINGS": "SETTINGS = {'rate': 2.0, 'inner': {'depth': [1, 2]}}",
    "NAMES": "NAMES = {'a'}",
    "WEIGHTS": "WEIGHTS = [ramp(3), ramp(3, start=3).requires_grad_()]",
    "count": "count = [0]",
    "log": "log = []",
    "F": "F = genesis.nn.functional",
    "helper": "def helper(x, power=2.0, *, shift=0.5):\n    return x * power + shift",
    "other_helper": "def other_helper(x, power=3.0, *, shift=1.5):\n    return x * power - shift",
    "Options": """class Base:
    unit = 2.0
    def factor(self):
        return self.unit
class Options(Base):
    scale = 2.0
    def __init__(self):
        self.bias = 1.0
    @property
    def shifted(self):
        return self.bias + 10
    def apply(self, x):
        return x * self.scale + self.bias
    def __call__(self, x):
        return x - self.bias
    @classmethod
    def of_class(cls, x):
        return x * cls.scale
    @staticmethod
    def of_nobody(x, power=2.0):
        return x * power
    def __getattr__(self, name):
        if name.startswith('dynamic'):
            return self.bias
        raise AttributeError(name)""",
    "Others": """class Others(Options):
    scale = 4.0
    def apply(self, x):
        return x * 5""",
    "options": "options = Options()",
    "tools": "tools = module('tools_of_programs', 'rate = 1.5\\ndef scaled(x):\\n    return x * rate')",
    "tools_of_programs": "tools = module('tools_of_programs', 'rate = 1.5\\ndef scaled(x):\\n    return x * rate')",
    "other_tools": "other_tools = module('other_tools', 'rate = 2.5\\ndef scaled(x):\\n    return x + rate')",
    "LAYERS": "LAYERS = [genesis.relu, lambda x: x * 2]",
    "Data": "@dataclasses.dataclass\nclass Data:\n    rate: float = 2.0\n    shape: tuple = (1, 2)",
    "DATA": "DATA = Data()",
    "Mode": "class Mode(enum.Enum):\n    FIRST = 1\n    SECOND = 2",
    "MODE": "MODE = Mode.FIRST",
    "steps": "def steps(x, by=2.0):\n    yield x * by\n    yield x",
    "power": "def power(x, n):\n    return x if n == 0 else x * power(x, n - 1)",
    "Manager": """class Manager:
    depth = 1
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass""",
    "MANAGER": "MANAGER = Manager()",
    "make_scaled": """def make_scaled(scale):
    def scaled(x):
        return x * scale
    def rescale(value):
        nonlocal scale
        scale = value
    return scaled, rescale""",
    "scaled": "scaled, rescale = make_scaled(3.0)",
    "rescale": "scaled, rescale = make_scaled(3.0)",
    "decorated": "decorated = genesis.no_grad()(lambda x: x * w)",
    "partial": "partial = functools.partial(helper, power=1.5)",
    "inner": "inner = compiled(lambda x: x * 2 + v)",
    "layer": "layer = genesis.nn.Linear(3, 3)",
    "block": """block = genesis.nn.Sequential(genesis.nn.Linear(3, 3), genesis.nn.ReLU(), genesis.nn.Dropout(0.5))""",
    "norm": "norm = genesis.nn.BatchNorm1d(3)",
    "Scale": """class Scale(genesis.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = genesis.nn.Parameter(ramp(3))
        self.register_buffer('seen', genesis.zeros(3))
        self.power = 1.5
    def forward(self, x):
        if self.training:
            with genesis.no_grad():
                self.seen.add_(x.sum() * 0.125)
        return x * self.weight + self.power""",
    "scale": "scale = Scale()",
    "sgd": "sgd = genesis.optim.SGD([w, v], lr=0.125)",
    "adam": "adam = genesis.optim.AdamW([w, v], lr=0.125, weight_decay=0.5)",
    "schedule": "schedule = genesis.optim.lr_scheduler.ExponentialLR(sgd, 0.5)",
    "Keeper": """class Keeper(genesis.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer('mean', genesis.zeros(3))
        self.calls, self.seen, self.first, self.hidden, self.cache = 0, 0, True, ramp(3), None
        self.other, self.losses, self.values, self.last, self.pair = self.hidden, [], [], None, (ramp(3), 1)
        self.table = {'calls': 0, 'h': ramp(3, start=2.0)}""",
    "keeper": "keeper = Keeper()",
    "hidden": "hidden = ramp(3, start=0.5)",
    "calls": "calls = 0",
    "double": "def double(g):\n    return g * 2",
    "Point": "@dataclasses.dataclass\nclass Point:\n    x: object\n    n: int = 3",
    "Both": "class Both(typing.NamedTuple):\n    first: object\n    second: object",
}
"""What programs use, by name. A program has those that it names, in this order."""

STATEMENTS = {
    # what only computes
    "{t} = {a} * {b}": 6,
    "{t} = {a} + w": 8,
    "{t} = {a} * v": 6,
    "{t} = {a} @ m": 3,
    "{t} = {a} - k": 3,
    "{t} = genesis.relu({a})": 3,
    "{t} = {a}.relu()": 3,
    "{t} = F.gelu({a})": 2,
    "{t} = {a}.tanh()": 2,
    "{t} = {a}.sum() * {b}": 2,
    "{t} = {a}.mean(-1, keepdim=True) + {b}": 2,
    "{t} = {a}.clone()": 2,
    "{t} = {a}.detach()": 3,
    "{t} = {a}.view({a}.shape)": 2,
    "{t} = {a}.flip(-1)": 1,
    "{t} = {a}[..., None].squeeze(-1)": 2,
    "{t} = {a} * 2 if {a}.requires_grad else {a} * 3": 3,
    "{t} = {a} * (2 if genesis.is_grad_enabled() else 3)": 3,
    "{t} = {a} * (2 if {a}.dtype == genesis.float32 else 3)": 1,
    "{t} = genesis.zeros(3) + {a}": 2,
    "{t} = {a} * genesis.full((3,), 0.5)": 2,
    "{t} = {a} + genesis.tensor([1.0, 2.0, 3.0])": 2,
    "{t} = genesis.where({a} > 1, {a}, w)": 2,
    "for i in range(2):\n    {t} = {a} * (i + 1)": 1,
    "{t} = sum([x * i for i, x in enumerate(({a}, {b}))])": 1,
    "try:\n    {t} = {a} @ genesis.zeros(7, 7)\nexcept RuntimeError:\n    {t} = {a} * 7": 1,
    # what is read besides the arguments
    "{t} = {a} * FACTOR": 2,
    "{t} = {a} * TABLE[0]": 2,
    "{t} = {a} + len(TABLE)": 1,
    "{t} = {a} * SETTINGS['rate']": 2,
    "{t} = {a} * SETTINGS['inner']['depth'][0]": 1,
    "{t} = {a} * len(NAMES)": 1,
    "{t} = {a} * len(SETTINGS)": 1,
    "{t} = {a} + WEIGHTS[-1]": 2,
    "{t} = {a} * ('extra' in SETTINGS) + 1": 1,
    "{t} = helper({a})": 3,
    "{t} = helper({a}, power=1.5)": 1,
    "{t} = scaled({a})": 2,
    "{t} = partial({a})": 1,
    "{t} = options.apply({a})": 2,
    "{t} = options({a})": 1,
    "{t} = {a} * options.factor()": 1,
    "{t} = {a} + options.shifted": 1,
    "{t} = {a} + options.bias": 1,
    "{t} = {a} + options.dynamic_bias": 1,
    "{t} = Options.of_class({a})": 1,
    "{t} = Options.of_nobody({a})": 1,
    "{t} = {a} * getattr(options, 'extra', 1.5)": 1,
    "{t} = {a} * (2 if isinstance(options, Others) else 3)": 1,
    "{t} = tools.scaled({a})": 2,
    "import tools_of_programs\n{t} = tools_of_programs.scaled({a})": 2,
    "from tools_of_programs import rate\n{t} = {a} * rate": 1,
    "{t} = {a} * max(2, 3)": 1,
    "{t} = {a} * (y if isinstance(y, float) else 2.5)": 2,
    "{t} = {a} + (y[0] if isinstance(y, (list, tuple)) else 1)": 2,
    "{t} = {a} * (2 if y is None or y is True or y == 'name' else 3) if not hasattr(y, 'shape') else {a} * y.dim()": 1,
    "def double_it(z, by=FACTOR):\n    return z * by\n{t} = double_it({a})": 1,
    "{t} = (lambda z: z + len(TABLE))({a})": 1,
    "{t} = [each({a}) for each in LAYERS][-1]": 1,
    "{t} = {a} * DATA.rate + DATA.shape[0]": 1,
    "{t} = {a} * (MODE.value if MODE is Mode.FIRST else 3)": 1,
    "{t} = next(steps({a}))": 1,
    "{t} = power({a}, 2)": 1,
    "try:\n    {t} = {a} * options.late\nexcept AttributeError:\n    {t} = {a} + 1": 1,
    "try:\n    {t} = {a} * LATE\nexcept NameError:\n    {t} = {a} + 1": 1,
    "with MANAGER:\n    {t} = {a} + MANAGER.depth": 1,
    "{t} = {a} * functools.reduce(lambda p, q: p + q, TABLE)": 1,
    "{t} = {a} * getattr(w, 'rate', 2.0)": 1,
    "{t} = {a} * (w.grad if w.grad is not None else 1)": 1,
    "{t} = inner({a})": 1,
    # modules
    "{t} = layer({a})": 2,
    "{t} = block({a})": 2,
    "{t} = norm({a}.float().reshape(-1, 3))": 1,
    "{t} = scale({a})": 2,
    # grad modes
    "with genesis.no_grad():\n    {t} = {a} * w": 5,
    "with genesis.no_grad():\n    {t} = {a} * 2\n{t} = {t} + {b}": 3,
    "with genesis.enable_grad():\n    {t} = {a} * v": 2,
    "with genesis.set_grad_enabled(False):\n    {t} = {a} + v": 2,
    "with genesis.no_grad():\n    with genesis.enable_grad():\n        {t} = {a} * w": 1,
    "{t} = decorated({a})": 2,
    "with genesis.autocast('cpu', dtype=genesis.bfloat16):\n    {t} = {a} @ m": 1,
    "{t} = genesis.checkpoint(lambda x: (x * w).tanh(), {a})": 1,
    # random numbers
    "{t} = {a} + genesis.rand(3)": 2,
    "{t} = {a} + genesis.randn_like({a})": 1,
    "{t} = F.dropout({a}, 0.5)": 2,
}
"""What a function does that a replay can do again."""

EFFECTS = {
    # writes to tensors
    "{t} = {a} * 1\n{t}.add_({b})": 3,
    "{t} = {a} + 0\n{t}[..., 0] = 7": 2,
    "k.add_(1)": 2,
    "{t} = k * 1\nk.mul_(0.5)": 1,
    "x.add_(1)": 2,
    "with genesis.no_grad():\n    x.mul_(2)": 2,
    "with genesis.no_grad():\n    w.mul_(0.5)": 2,
    "with genesis.no_grad():\n    ema.mul_(0.5).add_(w * 0.5)": 3,
    "ema.copy_({a}.detach().reshape(-1)[:3])": 2,
    "ema.add_({a}.detach().sum())": 1,
    "x.data = x.data * 2": 1,
    "w.data.mul_(0.5)": 1,
    "x.requires_grad_()": 1,
    "x.tag = 3": 1,
    "{t} = x.grad\n{t} = {a} if {t} is None else {a} + {t}": 2,
    "{t} = x.data * w": 1,
    # writes to Python's objects
    "count[0] += 1": 1,
    "options.bias = options.bias + 1": 1,
    "options.last = {a}": 1,
    "log.append({a}.detach())": 1,
    "global LEVEL\nLEVEL = LEVEL + 1\n{t} = {a} * LEVEL": 1,
    "SETTINGS['last'] = 3.0": 1,
    "scale.power = scale.power + 1": 1,
    "{t} = {a}.clone()\n{t}.tag = count": 1,
    # gradients inside
    "{t} = {a} * w\n{t}.register_hook(double)": 1,
    "{t}, = genesis.autograd.grad(({a} * w).sum(), w)": 2,
    "{t}, = genesis.autograd.grad(({a} * k).sum(), w)": 1,
    "({a} * w).sum().backward()\n{t} = {a}": 1,
    "sgd.zero_grad()\nloss = ({a} * w).sum()\nloss.backward()\nsgd.step()\n{t} = loss": 3,
    "adam.zero_grad()\nloss = ({a} * w * v).sum()\nloss.backward()\nadam.step()\n{t} = loss": 2,
    "genesis.nn.utils.clip_grad_norm_([w], 1.0)": 1,
    "w.grad = None": 1,
    # in-place ops on what the function makes
    "{t} = {a} * w\ngenesis.nn.functional.relu({t}, inplace=True)": 2,
    "{t} = {a} + v\n{t}.masked_fill_({t} > 2, 0.5)": 1,
    "{t} = {a} * v\n{t} *= 2\n{t}.add_(w)": 2,
    "{t} = ({a} * v).clone()\n{t}[..., 1] = {t}[..., 0] * w[0]": 1,
    # counters
    "keeper.calls += 1": 3,
    "keeper.calls = keeper.calls - 2": 1,
    "global calls\ncalls += 1": 2,
    "keeper.table['calls'] += 1": 2,
    "keeper.seen += 1\n{t} = {a} * (2 if keeper.seen % 2 else 3)": 1,
    "keeper.seen += 1\n{t} = {a} * keeper.seen": 1,
    "if keeper.first:\n    keeper.first = False\n    {a} = {a} * 2": 1,
    "for i in range(2):\n    keeper.calls += 3": 1,
    # hidden states and caches
    "keeper.hidden = keeper.hidden * 0.5 + {a}.reshape(-1)[:3]\n{t} = keeper.hidden + {b}": 3,
    "keeper.hidden = (keeper.hidden + w).detach()\n{t} = keeper.hidden * {a}": 2,
    "keeper.mean = keeper.mean * 0.5 + {a}.detach().reshape(-1)[:3]\n{t} = keeper.mean * {b}": 2,
    "keeper.hidden, keeper.other = keeper.other, keeper.hidden\n{t} = {a} + keeper.hidden": 1,
    "keeper.pair = (keeper.pair[0] + {a}.reshape(-1)[:3].detach(), keeper.pair[1])\n{t} = {b} * keeper.pair[0]": 1,
    "keeper.table['h'] = keeper.table['h'] - {a}.detach().reshape(-1)[:3]\n{t} = {b} + keeper.table['h']": 1,
    "keeper.cache = {a} if keeper.cache is None else genesis.cat([keeper.cache.reshape(-1)[:9], {a}.reshape(-1)[:3]])\n"
    "{t} = {b} * keeper.cache.sum()": 2,
    "keeper.other = keeper.hidden.view(-1)\nkeeper.hidden.add_(1)": 1,
    "global hidden\nhidden = hidden * 0.5 + {a}.detach().reshape(-1)[:3]\n{t} = hidden * {b}": 2,
    "keeper.last = {a} * 2": 2,
    "keeper.last = keeper.hidden\n{t} = {a} + keeper.hidden": 1,
    # lists, and values that are read last
    "keeper.losses.append({a}.detach())": 2,
    "keeper.losses.extend([{a}.detach().sum(), 3])": 1,
    "keeper.losses.append({a}.detach())\n{t} = {b} * len(keeper.losses)": 1,
    "keeper.values.append(({a} * w).sum().item())": 2,
    "keeper.last = ({a} * 2).sum().item()": 1,
    "keeper.values.append(({a} * w).sum().item())\n{t} = {b} * keeper.values[-1]": 1,
    # schedules
    "schedule.step()": 2,
    "schedule.step()\n{t} = {a} * schedule.get_last_lr()[0]": 1,
    # what cannot be captured
    "{t} = {a} * 2 if {a}.sum() > 3 else {a}": 1,
    "{t} = {a} * float(w.sum())": 1,
    "if FACTOR > 2.5:\n    raise ValueError('too large')": 1,
    "genesis.manual_seed(3)": 1,
}
"""What a function does besides computing. A program has few of them."""

RESULTS = {
    "return {a}": 12,
    "return {a}, {b}": 8,
    "return {a}, {a}": 2,
    "return {a}, {b} * v, w * 3": 3,
    "return [{a}, ({b}, None), 3]": 3,
    "return {{'a': {a}, 'n': 'three', 'flag': True}}": 3,
    "return {a} > 0, {b}": 3,
    "return {a}.shape, {a}.sum()": 2,
    "return x, {a}": 2,
    "return w, {a}": 1,
    "return x.view(-1)": 1,
    "return {a}.detach(), {a}": 2,
    "return {a}.view(-1), {a}": 2,
    "return {a}.unbind(-1)": 1,
    "return {a}.max(-1)": 2,
    "return Point({a})": 1,
    "return Both({a}, {b})": 2,
    "return (each for each in ({a}, {b}))": 1,
    "return None": 1,
    "return {a}.argmax(-1), {b}": 1,
    "return y, {a} * y": 2,
    "adam.zero_grad()\nloss = ({a} * w).sum()\nloss.backward()\nadam.step()\nreturn loss": 2,
    "adam.zero_grad()\nloss = ({a} * v).mean()\nloss.backward()\nadam.step()\nreturn loss.detach(), {b}": 2,
    "loss = ({a} * w * v).sum()\nsgd.zero_grad()\nloss.backward()\nsgd.step()\nreturn loss": 2,
    "return TABLE, {a}": 1,
    "return ({a} * w).sum().item()": 2,
    "return {{'loss': ({a} * 2).mean().item(), 'x': {b}}}": 2,
    "value = ({a} * w).sum().item()\nreturn value, {b}": 1,
    "value = ({a} * w).sum().item()\nreturn value * 2, {b}": 1,
    "return ({a} * 2).tolist(), float({b}.sum())": 1,
    "return bool(({a} > 1).all()), {b}": 1,
    "return genesis.allclose({a}, {b}), int(({a} * 2).sum()), {b}": 1,
    "loss = ({a} * w * v).sum()\nsgd.zero_grad()\nloss.backward()\nsgd.step()\nschedule.step()\nreturn loss.item()": 3,
    "loss = ({a} * w * v).square().mean()\nadam.zero_grad()\nloss.backward()\nadam.step()\nkeeper.calls += 1\n"
    "keeper.values.append(loss.item())": 2,
    "losses = []\nfor i in range(2):\n    sgd.zero_grad()\n    loss = ({a}.detach() * w * v).sum()\n"
    "    loss.backward()\n    sgd.step()\n    losses.append(loss)\nreturn losses": 2,
    "keeper.hidden = (keeper.hidden * w).detach() / 4\nloss = ({a} * v * keeper.hidden).sum()\nadam.zero_grad()\n"
    "loss.backward()\nadam.step()\nreturn loss, keeper.hidden": 2,
    "return keeper.hidden, {a}": 1,
    "return keeper.losses, {a}": 1,
}

ARGUMENTS = {
    "ramp(2, 3)": 12,
    "ramp(2, 3, start=0.25)": 4,
    "ramp(3)": 2,
    "ramp(4, 3)": 1,
    "ramp(2, 3).requires_grad_()": 5,
    "ramp(2, 3) * 2": 2,
    "x0": 4,
    "x1": 5,
    "x2": 2,
    "x0.view(3, 2).view(2, 3)": 1,
    "x0[:1]": 1,
    "x1 * 2": 2,
    "w": 1,
    "w * 2": 1,
    "k": 1,
    "ema": 1,
    "ramp(2, 3).double()": 1,
    "ramp(2, 3).bfloat16()": 1,
    "x0, y=3.0": 2,
    "x1, 0.5": 1,
    "x0, x1": 2,
    "x1, x1": 1,
    "x0, y=x2": 1,
    "x1, w": 1,
    "x0, k": 1,
    "x0, [x1, 2.0]": 1,
    "x0, y=[x2]": 1,
    "x1, (x2, x1)": 1,
    "x0, {{'a': x1}}": 1,
    "x0, y=None": 1,
    "x0, 'name'": 1,
    "x0, y=True": 1,
    "x=x0": 1,
    "genesis.rand(2, 3)": 1,
    "first({r})": 2,
}
"""What the function is called with."""

MODES = {
    "": 30,
    "with genesis.no_grad():": 3,
    "with genesis.inference_mode():": 1,
    "with genesis.enable_grad():": 1,
    "with genesis.autocast('cpu', dtype=genesis.bfloat16):": 1,
    "with default_dtype(genesis.float64):": 1,
    "with setting(fuse=False):": 1,
    "with setting(deterministic=False):": 1,
}
"""What a call is surrounded by."""

READS = {
    "note({r})": 10,
    "note(first({r}))": 3,
    "note(last({r}))": 3,
    "total({r}).backward()": 7,
    "first({r}).sum().backward()": 4,
    "last({r}).sum().backward()": 3,
    "note(genesis.autograd.grad(total({r}), [w, v], allow_unused=True))": 2,
    "note(genesis.autograd.grad(last({r}).sum(), [w, x1], allow_unused=True))": 1,
    "note(genesis.autograd.grad(first({r}).sum(), v))": 1,
    "first({r}).add_(1)": 2,
    "first({r}).detach().mul_(2)": 1,
    "last({r})[..., 0] = 5": 1,
    "(total({r}) * 2).backward(retain_graph=True)": 1,
    "first({r}).register_hook(double)": 1,
    "first({r}).retain_grad()": 1,
    "note([w.grad, v.grad])": 3,
    "note(x1.grad)": 1,
    "note([x0, x1])": 2,
    "note(genesis.rand(2))": 1,
    "note(genesis.get_rng_state())": 1,
    "del {r}": 2,
    "note([keeper.calls, keeper.table, keeper.hidden, keeper.last])": 2,
    "note([keeper.losses, keeper.values, keeper.mean, keeper.cache])": 2,
    "note([keeper.hidden is keeper.other, keeper.pair, hidden, calls])": 1,
    "keeper.hidden.sum().backward()": 1,
    "note(sgd.param_groups[0]['lr'])": 1,
    "note(same_objects({r}))": 2,
    "sgd.step()": 2,
    "adam.step()": 3,
    "total({r}).backward()\nadam.step()\nadam.zero_grad()": 3,
    "total({r}).backward()\nsgd.step()": 2,
    "sgd.zero_grad()": 1,
}
"""What is done with the results of calls."""

CHANGES = {
    # tensors
    "k.add_(1)": 1,
    "x0.mul_(2)": 1,
    "with genesis.no_grad():\n    w.mul_(0.5)": 1,
    "w.data = ramp(3, start=0.5)": 1,
    "w.requires_grad_(False)": 1,
    "w.requires_grad_(True)": 1,
    "x0.requires_grad_()": 1,
    "w.grad = None": 1,
    "w.grad = ramp(3)": 1,
    "x1.grad = None": 1,
    "v = ramp(3, start=4).requires_grad_()": 1,
    "k = w": 1,
    "k = w.detach()": 1,
    "m = ramp(3, 3)": 1,
    "x1.register_hook(double)": 1,
    "w.register_hook(double)": 1,
    # Python's objects
    "FACTOR = 3.0": 1,
    "del FACTOR": 1,
    "TABLE.append(4.0)": 1,
    "TABLE[0] = 5.0": 1,
    "SETTINGS['rate'] = 3.0": 1,
    "SETTINGS['extra'] = 3.0": 1,
    "SETTINGS['inner']['depth'][0] = 4": 1,
    "SETTINGS = dict(SETTINGS, rate=7.0)": 1,
    "NAMES.add('b')": 1,
    "WEIGHTS[-1] = ramp(3, start=9)": 1,
    "WEIGHTS.reverse()": 1,
    "max = min": 1,
    "rescale(5.0)": 1,
    "LAYERS.reverse()": 1,
    "LAYERS.append(genesis.tanh)": 1,
    "DATA.rate = 3.5": 1,
    "DATA = Data(4.5)": 1,
    "MODE = Mode.SECOND": 1,
    "LATE = 2.5": 1,
    "MANAGER.depth = 4": 1,
    "Manager.__enter__ = lambda self: setattr(self, 'depth', 5)": 1,
    "options.late = 4.0": 1,
    "Base.late = 6.0": 1,
    "w.rate = 5.0": 1,
    # functions
    "steps.__defaults__ = (6.0,)": 1,
    "power = lambda x, n: x * n": 1,
    "helper = other_helper": 1,
    "patch(helper, '__defaults__', (4.0,))": 1,
    "patch(helper, '__kwdefaults__', {'shift': 2.5})": 1,
    "patch(helper, '__code__', other_helper.__code__)": 1,
    "helper.__kwdefaults__['shift'] = 4.5": 1,
    "partial = functools.partial(helper, power=4.0)": 1,
    "partial.keywords['power'] = 5.0": 1,
    "patch(genesis, 'relu', genesis.tanh)": 1,
    "patch(genesis.Tensor, 'relu', genesis.Tensor.tanh)": 1,
    "patch(genesis.Tensor, '__mul__', genesis.Tensor.__add__)": 1,
    "patch(F, 'gelu', F.silu)": 1,
    "patch(F, 'linear', lambda x, w, b=None: x @ w)": 1,
    "patch(F, 'dropout', lambda x, *a, **k: x * 2)": 1,
    "patch(tools, 'rate', 3.5)": 1,
    "tools = other_tools": 1,
    "patch_item(sys.modules, 'tools_of_programs', other_tools)": 1,
    # objects and classes
    "options.bias = 3.0": 1,
    "options.scale = 7.0": 1,
    "options.extra = 2.5": 1,
    "options.apply = lambda x: x * 9": 1,
    "options.__class__ = Others": 1,
    "options = Others()": 1,
    "Options.scale = 5.0": 1,
    "Base.unit = 5.0": 1,
    "Options.unit = 6.0": 1,
    "Options.apply = lambda self, x: x * 8": 1,
    "Options.__call__ = lambda self, x: x * 6": 1,
    "Options.factor = lambda self: 9.0": 1,
    "Options.shifted = property(lambda self: 5.0)": 1,
    "Options.of_nobody.__defaults__ = (3.0,)": 1,
    "Options.__getattr__ = lambda self, name: 4.0": 1,
    "Options.__bases__ = (type('New', (), {'unit': 7.0, 'factor': lambda self: 8.0}),)": 1,
    # modules
    "block.eval()": 2,
    "block.train()": 1,
    "scale.eval()": 1,
    "norm.eval()": 1,
    "layer.requires_grad_(False)": 1,
    "layer.weight = genesis.nn.Parameter(ramp(3, 3))": 1,
    "layer.bias = None": 1,
    "block[2].p = 0.25": 1,
    "block[1] = genesis.nn.Tanh()": 1,
    "block.append(genesis.nn.Tanh())": 1,
    "layer.register_forward_hook(lambda module, given, out: out * 2)": 1,
    "scale.register_forward_pre_hook(lambda module, given: (given[0] * 2,))": 1,
    "layer.forward = lambda x: x * 4": 1,
    "scale.power = 2.5": 1,
    "Scale.forward = lambda self, x: x * self.weight * 2": 1,
    "scale.load_state_dict({'weight': ramp(3, start=5), 'seen': ramp(3)})": 1,
    "patch(genesis.nn.Linear, 'forward', lambda self, x: x * 5)": 1,
    "patch(genesis.nn.Module, '__call__', lambda self, x: x * 6)": 1,
    "layer.zero_grad()": 1,
    # what the function keeps
    "keeper.calls = 10": 1,
    "keeper.calls = 0.5": 1,
    "keeper.hidden = ramp(3)": 1,
    "keeper.hidden = ramp(3).requires_grad_()": 1,
    "keeper.hidden = w": 1,
    "keeper.hidden = keeper.other": 1,
    "keeper.hidden.mul_(0.5)": 1,
    "keeper.hidden = None": 1,
    "keeper.cache = None": 2,
    "keeper.first = True": 1,
    "keeper.seen = 0": 2,
    "keeper.losses.clear()": 1,
    "keeper.losses = []": 1,
    "keeper.values = keeper.losses": 1,
    "keeper.last = 3": 1,
    "keeper.table = dict(keeper.table)": 1,
    "keeper.table['calls'] = 7": 1,
    "keeper.mean = ramp(3)": 1,
    "hidden = ramp(3)": 1,
    "calls = 100": 1,
    "schedule.step()": 1,
    "schedule.gamma = 0.25": 1,
    # modes, seeds, optimizers
    "genesis.manual_seed(7)": 2,
    "genesis.rand(1)": 1,
    "sgd.param_groups[0]['lr'] = 0.5": 1,
    "adam.param_groups[0]['weight_decay'] = 0.0": 1,
    "keep(genesis.set_grad_enabled(False))": 1,
}
"""What changes between calls."""

FORMS = {
    "@compiled\ndef f(x, y=1.5):\n{body}": 12,
    "class Body(genesis.nn.Module):\n    def forward(self, x, y=1.5):\n{deep}\nf = compiled(Body())": 3,
    "class Body:\n    def run(self, x, y=1.5):\n{deep}\nbody = Body()\nf = compiled(body.run)": 1,
    "class Body:\n    @compiled\n    def run(self, x, y=1.5):\n{deep}\nbody = Body()\nf = body.run": 1,
    "@compiled\n@genesis.no_grad()\ndef f(x, y=1.5):\n{body}": 1,
    "@genesis.no_grad()\n@compiled\ndef f(x, y=1.5):\n{body}": 1,
    "def make(n):\n    @compiled\n    def f(x, y=1.5):\n        x = x + n\n{deep}\n    return f\nf = make(0.5)": 2,
}
"""What is compiled, around a body."""

WATCHED = ("w", "v", "m", "k", "x0", "x1", "x2", "ema", "FACTOR", "LEVEL", "TABLE", "SETTINGS", "NAMES", "WEIGHTS",
           "count", "log", "layer", "block", "norm", "scale", "hidden", "calls", "keeper")
"""Names whose state must be the same at the program's end."""

KEPT = ("calls", "seen", "first", "hidden", "cache", "other", "losses", "values", "last", "pair", "table")
"""Attributes of a module in which functions keep something, whose values must be the same at the program's end."""
