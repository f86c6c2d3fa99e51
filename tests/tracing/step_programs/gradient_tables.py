"""The building blocks of random steps that find gradients, work on them and leave others: lines in any order.

As in `tables.py`: `S` is the object that keeps the state, `{o}` one of its optimizers, `{k}` a small number.
"""

from __future__ import annotations

_LOSS = "loss = F.cross_entropy(S.net(x), y)\n"
_EACH = "for p in {p}.parameters():\n    if p.grad is not None:\n        "

BACKWARDS = {
    _LOSS + "loss.backward()": 8,
    "loss.backward()": 1,
    "loss.backward(retain_graph=True)": 1,
    _LOSS + "loss.backward(retain_graph=True)\nloss.square().backward()": 2,
    "out = S.net(x)\n(out * 0.5).sum().backward(retain_graph=True)\nF.cross_entropy(out, y).backward()": 1,
    _LOSS + "loss.backward(inputs=list(S.net.last.parameters()))": 1,
    _LOSS + "found = genesis.autograd.grad(loss, list(S.net.parameters()), allow_unused=True)\n"
    "for p, g in zip(S.net.parameters(), found):\n    if g is not None:\n"
    "        p.grad = g if p.grad is None else p.grad + g": 2,
    _LOSS + "found = genesis.autograd.grad(loss, list(S.net.parameters()), allow_unused=True)\n"
    "for p, g in zip(S.net.parameters(), found):\n    if g is not None and p.grad is not None:\n"
    "        p.grad += g\n    else:\n        p.grad = g": 2,
    "for part, answer in ((x[:2], y[:2]), (x[2:], y[2:])):\n    F.cross_entropy(S.net(part), answer).backward()": 2,
    "for _ in range({k}):\n    F.cross_entropy(S.net(x), y).backward()": 2,
}
"""Gradients are added to."""

ZEROS = {
    "{o}.zero_grad()": 4, "{o}.zero_grad(set_to_none=False)": 4, "S.net.zero_grad()": 1,
    "S.net.last.zero_grad(set_to_none=False)": 1,
    "S.net.norm.weight.grad = None": 1,
    "for p in S.net.parameters():\n    p.grad = None": 1,
    _EACH.format(p="S.net") + "p.grad.zero_()": 2,
    _EACH.format(p="S.net") + "p.grad = genesis.zeros_like(p)": 1,
    _EACH.format(p="S.net.last") + "p.grad.detach_().zero_()": 1,
}
"""Gradients are dropped or set to zero."""

STEPS = {
    "{o}.step()": 8,
    "S.sgd.step()": 2,
    "S.adam.step()": 2,
    "S.more.step()": 1,
    "S.sgd.step()\nS.schedule.step()": 1,
    "with genesis.no_grad():\n    for p in S.net.parameters():\n        if p.grad is not None:\n"
    "            p -= 0.1 * p.grad": 2,
    "with genesis.no_grad():\n    for p in S.net.parameters():\n        if p.grad is not None:\n"
    "            p.sub_(p.grad, alpha=0.1)\n            p.grad.mul_(0.5)": 1,
}
"""Weights are changed by their gradients."""

WORK = {
    _EACH.format(p="S.net") + "p.grad.mul_(0.5)": 2,
    _EACH.format(p="S.net") + "p.grad = p.grad * 0.5": 2,
    _EACH.format(p="S.net.norm") + "p.grad = p.grad.flip(0) + p.detach()": 1,
    _EACH.format(p="S.net") + "p.grad.add_(p.detach(), alpha=0.01)": 1,
    _EACH.format(p="S.net") + "p.grad.data.clamp_(-0.1, 0.1)": 1,
    _EACH.format(p="S.net") + "p.grad = p.grad.clone()": 1,
    "nn.utils.clip_grad_norm_(S.net.parameters(), 1.0)": 3,
    "nn.utils.clip_grad_value_(S.net.parameters(), 0.1)": 1,
    "S.hidden = nn.utils.clip_grad_norm_(S.net.parameters(), 0.5)": 1,
    "S.last = [p.grad for p in S.net.parameters()]": 1,
    "S.last = [None if p.grad is None else p.grad.clone() for p in S.net.parameters()]": 1,
    "S.log.append(S.net.norm.bias.grad)": 1,
    "if isinstance(S.last, list):\n    for p, g in zip(S.net.parameters(), S.last):\n        p.grad = g": 1,
    "if isinstance(S.last, list):\n    for p, g in zip(S.net.parameters(), S.last):\n"
    "        if p.grad is not None and g is not None:\n            p.grad.add_(g)": 1,
    "S.net.norm.weight.grad, S.net.norm.bias.grad = S.net.norm.bias.grad, S.net.norm.weight.grad": 1,
    "S.net.norm.weight.grad = S.net.norm.bias.grad": 1,
    "S.net.norm.weight.grad = None if S.net.norm.bias.grad is None else S.net.norm.bias.grad * 2": 1,
    "for m, p in zip(S.means, S.net.parameters()):\n    if p.grad is not None:\n        m.mul_(0.9).add_(p.grad)": 2,
    "for m, p in zip(S.means, S.net.parameters()):\n    if p.grad is not None:\n        p.grad.add_(m)": 1,
    "for m, p in zip(S.means, S.net.parameters()):\n    p.grad = m.clone()": 1,
    "for m, p in zip(S.means, S.net.parameters()):\n    p.grad = m": 0.5,
    "S.hidden = sum(p.grad.square().sum() for p in S.net.parameters() if p.grad is not None)": 2,
    "S.total = S.total + sum(p.grad.norm() for p in S.net.parameters() if p.grad is not None)": 1,
    "S.hidden = sum(s['momentum_buffer'].sum() for s in S.sgd.state.values() if 'momentum_buffer' in s)": 1,
    "for s in S.sgd.state.values():\n    if 'momentum_buffer' in s:\n        s['momentum_buffer'].mul_(0.5)": 1,
    "S.hidden = sum(s['exp_avg'].sum() for s in S.adam.state.values() if 'exp_avg' in s)": 1,
    "S.turn += 1": 2,
    "S.losses.append(loss.item())": 2,
    "S.log.append(loss.detach())": 1,
    "S.seen += sum(p.grad is not None for p in S.net.parameters())": 1,
    "loss = F.cross_entropy(S.net(x), y)": 2,
    "loss = F.cross_entropy(S.net(x) + S.other(x), y)": 2,
    "(x.detach() * S.net.seen.requires_grad_()).sum().backward()": 0.5,
}
"""What is done with them besides."""

CONDITIONS = {
    "S.turn % {k} == 0": 5, "flag": 3, "S.net.first.weight.grad is not None": 3, "S.net.norm.bias.grad is None": 2,
    "S.flag": 1, "x.shape[0] > 4": 1,
}

RESULTS = {
    "loss": 3, "loss.detach()": 6, "loss.item()": 4, "None": 5, "out": 0.5,
    "[p.grad for p in S.net.parameters()]": 1, "S.net.norm.bias.grad": 1,
    "[None if p.grad is None else p.grad.sum() for p in S.net.parameters()]": 2,
    "[None if p.grad is None else p.grad.norm().item() for p in S.net.parameters()]": 1,
    "S.last": 0.5, "S.hidden": 1,
}

EVENTS = (
    "look()", "look()", "look()", "read({k})", "read({k})", "results.clear()",
    "note(bits([p.grad for p in S.net.parameters()]))",
    "note(bits(S.net.norm.bias.grad))",
    "note(bits([S.sgd.state_dict(), S.adam.state_dict()]))",
    "for s in S.sgd.state.values():\n    if 'momentum_buffer' in s:\n        s['momentum_buffer'].zero_()",
    "S.sgd.zero_grad()", "S.sgd.zero_grad(set_to_none=False)", "S.net.norm.bias.grad = None",
    "for p in S.net.parameters():\n    p.grad = None",
    "for p in S.net.parameters():\n    p.grad = genesis.ones_like(p)",
    "for p in S.net.norm.parameters():\n    p.grad = genesis.ones(5)",
    "S.net.norm.weight.grad = S.net.norm.bias.grad",
    "S.net.norm.weight.grad, S.net.norm.bias.grad = S.net.norm.bias.grad, S.net.norm.weight.grad",
    "S.net.norm.bias.grad = S.net.norm.weight.detach()",
    "rows = genesis.ones(4, 5)\nS.net.norm.bias.grad = rows[{k} % 4]",
    "rows = genesis.ones(4, 5)\nS.net.norm.bias.grad, S.net.norm.weight.grad = rows[0], rows[1]",
    "kept = [p.grad for p in S.net.parameters()]\nresults.append(kept)",
    "kept = [p.grad for p in S.net.parameters()]\ncall(*batch({i}))\n"
    "for p, g in zip(S.net.parameters(), kept):\n    p.grad = g",
    "kept = [p.grad for p in S.net.parameters()]\ncall(*batch({i}))\nnote(bits(kept))",
    "kept = S.net.first.weight.grad\nif kept is not None:\n    kept.mul_(0.5)",
    "kept = S.net.first.weight.grad\nif kept is not None:\n    doubled = kept * 2\n    results.append(doubled)",
    "kept = S.net.norm.bias.grad\nif kept is not None:\n    results.append(kept.view(5)[1:3])",
    "kept = S.net.norm.bias.grad\nif kept is not None:\n    results.append(kept.numpy())",
    "F.cross_entropy(S.net(batch({i})[0]), batch({i})[1]).backward()",
    "S.other(batch({i})[0]).sum().backward()",
    "S.sgd.step()", "S.adam.step()\nS.adam.zero_grad()",
    "nn.utils.clip_grad_norm_(S.net.parameters(), 1.0)",
    "S.last = [p.grad for p in S.net.parameters()]", "S.last = None", "S.turn += 1", "S.flag = not S.flag",
    "S.net.last.requires_grad_({k} % 2 == 0)",
    "with genesis.no_grad():\n    S.net.norm.bias.add_(1)",
    "S.net.load_state_dict(copy.deepcopy(S.net.state_dict()))",
    "S.sgd.load_state_dict(copy.deepcopy(S.sgd.state_dict()))",
    "S.sgd = genesis.optim.SGD(S.net.parameters(), lr=0.05, momentum=0.5)",
    "import gc\ngc.collect()",
    "for m in S.means:\n    m.zero_()",
    "if results and isinstance(results[-1], genesis.Tensor) and results[-1].requires_grad:\n"
    "    results[-1].sum().backward()",
)
"""What is done between the calls."""
