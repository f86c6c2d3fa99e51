"""Training steps: what runs when, what is kept for whom, and that the numbers are torch's."""

from __future__ import annotations

import gc
import types
import weakref

import pytest
from torch_programs import check

import genesis
from genesis import engine, nn, optim
from genesis.ir import node
from genesis.runtime.cpu import storage as cpu_storage

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


def _net(T, nn, classes=3):
    """A small net with fixed weights, the same in both frameworks."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh() if hasattr(nn, "Tanh") else nn.ReLU(), nn.Linear(8, classes))
    with T.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(T.sin(T.arange(p.numel()).float() + i).view(p.shape) * 0.5)
    return net


def _batch(T, n=6, step=0, classes=3):
    x = T.cos(T.arange(n * 4).float() * 0.7 + step).view(n, 4)
    y = (T.arange(n) + step) % classes
    return x, y


def _optimizers(optim):
    return [lambda p: optim.SGD(p, lr=0.1), lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
            lambda p: optim.Adam(p, lr=0.01), lambda p: optim.AdamW(p, lr=0.01, weight_decay=0.1)]


@program
def a_training_loop_with_each_optimizer(T, nn, optim, np):
    results = []
    for make in _optimizers(optim):
        net = _net(T, nn)
        opt = make(net.parameters())
        for step in range(4):
            x, y = _batch(T, step=step)
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            results.append(loss.item())
        results += [p.detach() for p in net.parameters()]
        results += [p.grad for p in net.parameters()]
    return results


@program
def logits_printed_after_the_step(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.SGD(net.parameters(), lr=0.5)
    seen = []
    for step in range(3):
        x, y = _batch(T, step=step)
        logits = net(x)
        hidden = net[0](x)
        loss = nn.functional.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += [logits.detach().clone(), hidden.tolist(), loss.item(), logits.argmax(-1), net(x)]
    return seen, logits, loss


@program
def logits_read_many_steps_later(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.Adam(net.parameters(), lr=0.1)
    kept = []
    for step in range(3):
        x, y = _batch(T, step=step)
        logits = net(x)
        kept.append((logits, logits * 2, net[2].weight.sum(), logits.softmax(-1).max()))
        opt.zero_grad()
        nn.functional.cross_entropy(logits, y).backward()
        opt.step()
    return kept


@program
def the_loss_is_read_before_backward(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.AdamW(net.parameters(), lr=0.05)
    seen = []
    for step in range(3):
        x, y = _batch(T, step=step)
        loss = nn.functional.cross_entropy(net(x), y)
        seen.append(loss.item())
        opt.zero_grad()
        loss.backward()
        seen.append(net[0].weight.grad.clone())
        opt.step()
    return seen, list(net.parameters())


@program
def the_gradient_is_read_and_changed_before_the_step(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.SGD(net.parameters(), lr=0.5)
    norms = []
    for step in range(3):
        x, y = _batch(T, step=step)
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 0.05)))
        for p in net.parameters():
            p.grad.mul_(2)
        opt.step()
    return norms, list(net.parameters()), [p.grad for p in net.parameters()]


@program
def gradient_accumulation(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.AdamW(net.parameters(), lr=0.01)
    for step in range(2):
        opt.zero_grad()
        for micro in range(3):
            x, y = _batch(T, step=3 * step + micro)
            (nn.functional.cross_entropy(net(x), y) / 3).backward()
        opt.step()
    return list(net.parameters()), [p.grad for p in net.parameters()]


@program
def gradient_accumulation_with_the_loss_read(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    total = 0.0
    for step in range(2):
        opt.zero_grad(set_to_none=False)
        for micro in range(3):
            x, y = _batch(T, step=3 * step + micro)
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            total += loss.item()
        opt.step()
    return total, list(net.parameters())


@program
def gradients_kept_over_steps(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        x, y = _batch(T, step=step)
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
    return list(net.parameters()), [p.grad for p in net.parameters()]


@program
def a_parameter_tied_in_two_modules(T, nn, optim, np):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens):
            return self.head(self.table(tokens))

    net = Tied()
    with T.no_grad():
        net.head.weight.copy_(T.sin(T.arange(20).float()).view(5, 4))
    opt = optim.AdamW(net.parameters(), lr=0.1)
    tokens = T.tensor([[0, 3, 1], [4, 4, 2]])
    losses = []
    for _ in range(3):
        logits = net(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    tied = net.head.weight is net.table.weight, len(list(net.parameters()))
    return losses, tied, net.table.weight, net.head.weight.grad


@program
def a_changing_batch_size(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.Adam(net.parameters(), lr=0.01)
    losses = []
    for step, n in enumerate([6, 6, 2, 6, 1, 3]):
        x, y = _batch(T, n, step)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        losses.append(loss)
    return losses, list(net.parameters())


@program
def a_changing_learning_rate(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.AdamW(net.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5)
    for step in range(5):
        x, y = _batch(T, step=step)
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
        schedule.step()
        if step == 3:
            opt.param_groups[0]["lr"] = 0.5
    return list(net.parameters())


@program
def two_optimizers_over_one_model(T, nn, optim, np):
    net = _net(T, nn)
    first, second = optim.SGD(net[0].parameters(), lr=0.3), optim.Adam(net[2].parameters(), lr=0.02)
    outs = []
    for step in range(3):
        x, y = _batch(T, step=step)
        logits = net(x)
        loss = nn.functional.cross_entropy(logits, y)
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        first.step()
        second.step()
        outs += [logits, loss]
    return outs, list(net.parameters())


@program
def two_models_in_turns(T, nn, optim, np):
    g, d = _net(T, nn, 4), _net(T, nn, 1)
    og, od = optim.Adam(g.parameters(), lr=0.01), optim.Adam(d.parameters(), lr=0.01)
    x, _ = _batch(T)
    seen = []
    for _ in range(3):
        fake = g(x)
        od.zero_grad()
        d_loss = (d(fake.detach()).sigmoid() - d(x).sigmoid()).mean()
        d_loss.backward()
        od.step()
        og.zero_grad()
        g_loss = -d(fake).mean()
        g_loss.backward()
        og.step()
        seen += [d_loss, g_loss, fake]
    return seen, list(g.parameters()), list(d.parameters())


@program
def a_moving_average_of_the_weights(T, nn, optim, np):
    net = _net(T, nn)
    average = [p.detach().clone() for p in net.parameters()]
    opt = optim.SGD(net.parameters(), lr=0.5)
    for step in range(4):
        x, y = _batch(T, step=step)
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
        with T.no_grad():
            for a, p in zip(average, net.parameters(), strict=True):
                a.mul_(0.9).add_(p, alpha=0.1)
    return average, list(net.parameters())


@program
def a_step_written_by_hand(T, nn, optim, np):
    w = T.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    b = T.zeros(2, requires_grad=True)
    for step in range(4):
        x = T.tensor([[1.0, float(step)]])
        loss = ((x @ w + b - 1) ** 2).mean()
        loss.backward()
        with T.no_grad():
            for p in (w, b):
                p -= 0.1 * p.grad
                p.grad.zero_()
    return w, b, loss


@program
def frozen_layers(T, nn, optim, np):
    net = _net(T, nn)
    for p in net[0].parameters():
        p.requires_grad_(False)
    opt = optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for step in range(2):
        x, y = _batch(T, step=step)
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
    return [(p, p.grad is None) for p in net.parameters()]


@program
def a_best_state_kept_while_training_goes_on(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.SGD(net.parameters(), lr=0.5)
    for step in range(4):
        if step == 2:
            best = {name: value.clone() for name, value in net.state_dict().items()}
            live = net.state_dict()
        x, y = _batch(T, step=step)
        opt.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        opt.step()
    late = {name: value.clone() for name, value in live.items()}
    net.load_state_dict(best)
    return best, late, list(net.parameters())


@program
def evaluation_between_steps(T, nn, optim, np):
    net = _net(T, nn)
    opt = optim.Adam(net.parameters(), lr=0.05)
    seen = []
    for step in range(4):
        x, y = _batch(T, step=step)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if step % 2:
            net.eval()
            with T.no_grad():
                seen.append(nn.functional.cross_entropy(net(x), y))
            net.train()
    return seen, loss


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_program(run):
    check(run, rtol=1e-4)


class Task:
    """A classifier with many more parameters than logits, or the other way round."""

    def __init__(self, inputs=4, hidden=8, classes=3, batch=6, optimizer=optim.AdamW):
        genesis.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, classes))
        self.opt = optimizer(self.net.parameters(), lr=0.1)
        self.x, self.y = genesis.randn(batch, inputs), genesis.randint(0, classes, (batch,))
        engine.materialize([self.x, self.y])

    def step_for_the_loss(self):
        """One step; returns the loss, the only name alive when it ends."""
        loss = nn.functional.cross_entropy(self.net(self.x), self.y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss

    def step(self):
        """One step; returns (logits, loss), both alive when it ends."""
        logits = self.net(self.x)
        loss = nn.functional.cross_entropy(logits, self.y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return logits, loss


def calls(name: str) -> int:
    """How many calls of the last plan are to this op."""
    return sum(step.label.split(" ")[0] == name for step in engine.last_plan().plan.steps)


def observed():
    """A list that fills with the plans built, and the context that fills it."""
    plans = []
    return plans, engine.observe(plans.append)


FORWARD, BACKWARD = 2, 3
"""Matrix products of a task's forward, and of its backward: two for weights, one for the hidden layer's gradient."""


def products() -> int:
    """How many matrix products the last plan computes."""
    return sum(calls(name) for name in ("matmul", "linear", "addmm"))


def test_one_forward_serves_the_step_and_the_live_logits():
    task = Task()
    logits, loss = task.step()
    assert products() == FORWARD + BACKWARD
    step = engine.last_plan()
    assert logits.shape == (6, 3) and logits.tolist() and loss.item() > 0
    assert engine.last_plan() is step


def test_a_loss_read_before_backward_costs_no_second_forward():
    task = Task()
    for _ in range(3):
        task.opt.zero_grad()
        logits = task.net(task.x)
        loss = nn.functional.cross_entropy(logits, task.y)
        loss.item()
        assert products() == FORWARD
        loss.backward()
        task.opt.step()
        assert products() == BACKWARD
    assert logits.shape == (6, 3)


def test_a_loss_is_computed_with_its_gradients():
    """Its backward has forgotten how it came to be; the gradients' program computes it anyway."""
    task = Task()
    loss = nn.functional.cross_entropy(task.net(task.x), task.y)
    loss.backward()
    genesis.eval([p.grad for p in task.net.parameters()])
    backward = engine.last_plan()
    assert loss.item() > 0
    assert engine.last_plan() is backward


def test_an_evaluation_loop_saves_for_backward_only_once():
    """When what was saved died unused, the next evaluation saves nothing; a backward after all computes it again."""
    task = Task()
    sizes = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(task.net(task.x), task.y)
        loss.item()
        sizes.append(len(engine.last_plan().plan.outputs))
    assert sizes[-1] == 1 and sizes[0] > 1
    loss.backward()
    expected = nn.functional.cross_entropy(task.net(task.x), task.y)
    grads = [p.grad.clone() for p in task.net.parameters()]
    task.opt.zero_grad()
    expected.backward()
    for p, g in zip(task.net.parameters(), grads, strict=True):
        assert (p.grad - g).abs().max().item() < 1e-6


def test_small_logits_are_kept_as_an_output():
    """Fewer bytes than the weights they came from: the step gives them, nothing is copied."""
    task = Task(inputs=64, hidden=64)
    logits, loss = task.step()
    outputs = engine.last_plan().plan.outputs
    assert logits.storage.type in outputs and loss.storage.type in outputs
    before = engine.last_plan()
    logits.tolist()
    assert engine.last_plan() is before


def test_large_logits_stay_computable_from_a_copy_of_the_weights():
    """More bytes than the weights: the old weights are kept instead, and reading computes the logits then."""
    task = Task(inputs=4, hidden=4, classes=3, batch=2000)
    logits, loss = task.step()
    outputs = engine.last_plan().plan.outputs
    assert logits.storage.type not in outputs
    weights = sum(p.storage.type.nbytes for p in task.net.parameters())
    grads = weights  # gradients stay readable too
    assert sum(type.nbytes for type in outputs) <= weights + grads + 4096
    expected = nn.functional.cross_entropy(logits, task.y)
    assert abs(expected.item() - loss.item()) < 1e-6


def test_nothing_is_kept_for_names_that_are_gone():
    task = Task(inputs=64, hidden=64)
    logits_type = task.step()[0].storage.type
    for _ in range(2):
        loss = task.step_for_the_loss()
        assert logits_type not in engine.last_plan().plan.outputs
    assert loss.item() > 0


def test_a_step_compiles_at_most_twice():
    plans, watching = observed()
    task = Task()
    with watching:
        for _ in range(6):
            logits, loss = task.step()
    assert len(plans) <= 2
    assert logits.shape == (6, 3) and loss.item() > 0


@pytest.mark.parametrize("optimizer", [optim.SGD, optim.Adam, optim.AdamW])
def test_a_step_with_the_loss_read_each_time_compiles_little(optimizer):
    plans, watching = observed()
    task = Task(optimizer=optimizer)
    with watching:
        for _ in range(5):
            task.step()[1].item()
    assert len(plans) <= 2


def test_a_new_learning_rate_or_batch_content_compiles_nothing():
    task = Task()
    for _ in range(3):
        task.step()
    plans, watching = observed()
    with watching:
        for lr in (0.1, 0.01, 0.5):
            task.opt.param_groups[0]["lr"] = lr
            task.x = genesis.tensor([[lr] * 4] * 6)
            task.step()
    assert not plans


def test_a_batch_size_seen_before_compiles_nothing():
    task = Task()
    sizes = {n: (genesis.ones(n, 4) * 0.5, genesis.zeros(n, dtype=genesis.int64)) for n in (2, 5)}
    engine.materialize([t for pair in sizes.values() for t in pair])
    for _ in range(3):
        for task.x, task.y in sizes.values():
            task.step()
    plans, watching = observed()
    with watching:
        for _ in range(2):
            for task.x, task.y in sizes.values():
                task.step()
    assert not plans


def test_parameters_gradients_and_state_keep_their_memory():
    task = Task()
    parameters = list(task.net.parameters())
    before = [p.data_ptr() for p in parameters]
    task.step()
    state = [task.opt.state[p]["exp_avg"].data_ptr() for p in parameters]
    for _ in range(3):
        task.step()
    assert [p.data_ptr() for p in parameters] == before
    assert [task.opt.state[p]["exp_avg"].data_ptr() for p in parameters] == state


def test_accumulated_gradients_keep_their_memory():
    task = Task()
    nn.functional.cross_entropy(task.net(task.x), task.y).backward()
    grads = [p.grad for p in task.net.parameters()]
    before = [g.data_ptr() for g in grads]
    nn.functional.cross_entropy(task.net(task.x), task.y).backward()
    assert [p.grad is g for p, g in zip(task.net.parameters(), grads, strict=True)] == [True] * 4
    assert [p.grad.data_ptr() for p in task.net.parameters()] == before


def live_nodes() -> int:
    """Nodes that are alive."""
    gc.collect()
    return len(node._table)


def live_bytes(monkeypatch) -> types.SimpleNamespace:
    """Counts host memory that storages hold: `now` is a function."""
    alive = {}
    allocate, holding = cpu_storage.allocate, cpu_storage.CPUStorage.holding

    def counted(block):
        key = len(alive)
        alive[key] = block.nbytes
        weakref.finalize(block, alive.__setitem__, key, 0)
        return block

    def counting(nbytes):
        block, address = allocate(nbytes)
        return counted(block), address

    monkeypatch.setattr(cpu_storage, "allocate", counting)
    monkeypatch.setattr(cpu_storage.CPUStorage, "holding", lambda tensor, kind: holding(counted(tensor), kind))
    return types.SimpleNamespace(now=lambda: (gc.collect() and 0) or sum(alive.values()))


@pytest.mark.usefixtures("only_new_garbage")
@pytest.mark.parametrize("keep", ["the loss's value", "logits and loss"])
def test_an_evaluation_loop_without_no_grad_piles_nothing_up(keep, monkeypatch):
    task = Task()
    memory = live_bytes(monkeypatch)
    nodes, sizes, values = [], [], []
    for _ in range(8):
        logits = task.net(task.x)
        loss = nn.functional.cross_entropy(logits, task.y)
        values.append(loss.item())
        if keep == "the loss's value":
            del logits, loss
        nodes.append(live_nodes())
        sizes.append(memory.now())
    assert len(set(values)) == 1
    assert nodes[-1] == nodes[2] and sizes[-1] == sizes[2]


@pytest.mark.usefixtures("only_new_garbage")
def test_a_training_loop_piles_nothing_up(monkeypatch):
    task = Task()
    memory = live_bytes(monkeypatch)
    nodes, sizes = [], []
    for _ in range(8):
        logits, loss = task.step()
        nodes.append(live_nodes())
        sizes.append(memory.now())
    assert nodes[-1] == nodes[3] and sizes[-1] == sizes[3]
    assert logits.shape == (6, 3) and loss.item() > 0


@pytest.mark.usefixtures("only_new_garbage")
def test_a_running_total_of_losses_piles_nothing_up():
    task = Task()
    total, nodes = genesis.zeros(()), []
    for _ in range(8):
        total += task.step()[1].detach()
        nodes.append(live_nodes())
    assert nodes[-1] == nodes[3]
    assert total.item() > 0


def test_a_step_runs_without_being_read():
    """optimizer.step() ends a step: the parameters' memory is new when it returns."""
    task = Task()
    task.step()
    assert all(p.storage.settled for p in task.net.parameters())
