"""Profiles: torch's interface, what is counted for kernels, and that nothing is left behind."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import genesis
from genesis import nn, optim
from genesis.engine import compilation, plans
from genesis.ir.flops import flops_of
from genesis.models import GPT, GPTConfig
from genesis.passes import pipeline
from genesis.profiler import (
    ProfilerAction,
    ProfilerActivity,
    hooks,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from genesis.profiler.averages import SORTS
from genesis.profiler.costs import peaks_of
from genesis.profiler.recorder import Recorder, line_of_frame
from genesis.runtime.cpu.executor import CPUExecutor
from genesis.runtime.cpu.one_call import OneCall
from genesis.runtime.cpu.storage import CPUStorage


def fresh(device: str = "cpu") -> tuple[Any, Any, Any]:
    genesis.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to(device)
    return model, optim.AdamW(model.parameters(), lr=0.01), genesis.ones(4, 8, device=device)


def step(model: Any, optimizer: Any, x: Any) -> float:
    optimizer.zero_grad()
    loss = (model(x) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def replaced() -> list[Any]:
    """The functions that hooks replace."""
    return [vars(owner)[name] for owner, name in (
        (compilation.Compiled, "start"), (compilation.Compiled, "run"), (plans, "find"), (pipeline, "run_passes"),
        (CPUExecutor, "call_all"), (CPUExecutor, "start"), (OneCall, "run"), (CPUStorage, "__init__"))]


def test_a_profiled_step_is_the_step() -> None:
    parts = fresh()
    plain = [step(*parts) for _ in range(4)]
    parts, before = fresh(), replaced()
    losses = [step(*parts)]
    with profile(profile_memory=True, with_stack=True):
        losses += [step(*parts), step(*parts)]
    assert [*losses, step(*parts)] == plain
    assert replaced() == before and Recorder.active is None


def test_nothing_is_in_the_way_after_an_exception() -> None:
    before = replaced()
    with pytest.raises(ZeroDivisionError), profile(with_stack=True):
        raise ZeroDivisionError
    assert replaced() == before and Recorder.active is None
    assert not [t for t in threading.enumerate() if t.name == "genesis-profiler"]


def test_rows_of_kernels() -> None:
    parts = fresh()
    step(*parts)
    with profile(activities=[ProfilerActivity.CPU]) as p:
        for _ in range(3):
            step(*parts)
    rows = {row.key: row for row in p.key_averages()}
    assert rows["linear"].count == 6 and rows["adamw"].count == 3
    assert rows["linear"].flops == 3 * (2 * 4 * 8 * 16 + 2 * 4 * 16 * 1)
    first = 4 * (4 * 8 + 8 * 16 + 16 + 4 * 16)  # x, the weight, the bias, the result, in float32
    second = 4 * (4 * 16 + 16 + 1 + 4)
    assert rows["linear"].bytes == 3 * (first + second)
    assert abs(sum(row.share for row in rows.values()) - 1) < 1e-9, "shares are parts of a whole; sums of float64"
    for row in rows.values():
        assert row.time_total > 0 and row.device == "cpu" and row.count >= 3
        if row.roofline is not None:
            assert row.side in ("memory", "compute")
    total = p.key_averages().total_average()
    assert total.count == sum(row.count for row in rows.values())
    lines = {row.line for row in p.key_averages(group_by_stack_n=1)}
    assert all("test_profile.py" in line for line in lines if line)


def test_columns() -> None:
    with profile() as p:
        (genesis.ones(8, 8) @ genesis.ones(8, 8)).sum().item()
    for column in SORTS:
        values = [getattr(row, column) for row in p.key_averages()]
        table = p.key_averages().table(sort_by=column, row_limit=1)
        assert len(table.splitlines()) == 3 and max(values) >= 0
    assert "Roofline" in p.key_averages().table(header="mine") and p.key_averages().table(header="mine")[:4] == "mine"
    rows = p.key_averages()
    assert str(rows) == rows.table() and len(str(rows).splitlines()) == len(rows) + 2
    with pytest.raises(ValueError, match=r"sort_by='self_cpu_memory_usage': no kernel allocates.*by which line"):
        rows.table(sort_by="self_cpu_memory_usage")
    with pytest.raises(ValueError, match="sort_by='time' is no column; there are cpu_time_total"):
        p.key_averages().table(sort_by="time")


@pytest.mark.parametrize(("wait", "warmup", "active", "repeat", "skip"), [
    (1, 1, 2, 1, 0), (0, 1, 1, 0, 0), (0, 2, 3, 2, 1), (3, 1, 1, 2, 2), (0, 1, 1, 0, 3)])
def test_schedules_are_torchs(wait: int, warmup: int, active: int, repeat: int, skip: int) -> None:
    import torch
    theirs = torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
    ours = schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip)
    assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]
    theirs = torch.profiler.schedule(wait=wait, warmup=warmup, active=active, skip_first=skip, skip_first_wait=1)
    ours = schedule(wait=wait, warmup=warmup, active=active, skip_first=skip, skip_first_wait=1)
    assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]
    with pytest.raises(ValueError, match="active must be positive"):
        schedule(wait=1, warmup=1, active=0)


@pytest.mark.parametrize(("wait", "warmup", "active", "repeat", "steps"), [
    (1, 1, 2, 1, 7), (1, 1, 2, 2, 9), (0, 1, 2, 0, 4), (1, 1, 3, 1, 4)])
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_traces_are_ready_when_torchs_are(wait: int, warmup: int, active: int, repeat: int, steps: int) -> None:
    import torch

    def ready(library: Any) -> list[int]:
        found: list[int] = []
        with library.profile(schedule=library.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat),
                             activities=[library.ProfilerActivity.CPU],
                             on_trace_ready=lambda p: found.append(p.step_num)) as p:
            for _ in range(steps):
                p.step()
        return found
    assert ready(genesis.profiler) == ready(torch.profiler)


def test_only_active_steps_are_told_of() -> None:
    parts = fresh()
    counts: list[int] = []

    def note(p: profile) -> None:
        counts.append(next(row.count for row in p.key_averages() if row.key == "adamw"))
    with profile(schedule=schedule(wait=2, warmup=1, active=2, repeat=1), on_trace_ready=note) as p:
        for _ in range(8):
            step(*parts)
            p.step()
    assert counts == [2]


def test_parts_with_names(tmp_path: Path) -> None:
    @record_function("inner")
    def work(x: genesis.Tensor) -> float:
        return (x + 1).sum().item()
    with profile() as p:
        for _ in range(2):
            with record_function("outer"):
                work(genesis.ones(3))
        p.step()
    rows = {row.key: row for row in p.key_averages()}
    assert rows["inner"].count == rows["outer"].count == 2 and rows["inner"].time_total <= rows["outer"].time_total
    assert rows["outer"].device == "" and rows["outer"].device_time_total == 0
    assert "ProfilerStep#0" in [event.name for event in p.events()]
    assert work(genesis.ones(3)) == 6.0, "without a profile it is the function"


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_that_perfetto_shows(name: str, tmp_path: Path) -> None:
    parts = fresh()
    with profile(profile_memory=True) as p:
        genesis.eval((genesis.ones(3, len(name)) * 2).exp().sum(1).tanh())  # of this size there is no plan yet
        step(*parts)
        p.step()
    p.add_metadata("run", "a")
    p.add_metadata_json("sizes", "[1, 2]")
    p.export_chrome_trace(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    found = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert found["run"] == "a" and found["sizes"] == [1, 2]
    events = found["traceEvents"]
    kinds = {event["ph"] for event in events}
    assert kinds == {"M", "X", "C"}
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["name"], str)
        if event["ph"] == "X":
            assert event["dur"] >= 0 and isinstance(event["ts"], float) and isinstance(event["tid"], int)
    assert {"kernel", "pass", "compile", "plan", "step"} <= {event.get("cat") for event in events}
    kernel = next(event for event in events if event.get("cat") == "kernel" and event["name"] == "linear")
    assert kernel["args"]["flops"] > 0 and "test_profile.py" in kernel["args"]["line"]


def test_files_for_tensorboard(tmp_path: Path) -> None:
    with profile(schedule=schedule(wait=0, warmup=0, active=1, repeat=2),
                 on_trace_ready=tensorboard_trace_handler(str(tmp_path / "runs"), "me")) as p:
        for _ in range(3):
            genesis.ones(2).sum().item()
            p.step()
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert len(names) == 2 and all(name.startswith("me.") and name.endswith(".pt.trace.json") for name in names)


MEMORY = """
import genesis
from genesis.profiler import profile

with profile(profile_memory=True) as p:
    kept = genesis.ones(1000, 1000).cos()  # 4 MB
    genesis.eval(kept)
    genesis.eval(kept + 1)  # 4 MB more, for a moment
    genesis.eval(kept[:2] + 1)
memory = p._recorded()[0].memory["cpu"]
assert 8_000_000 <= memory.peak < 13_000_000 and memory.timeline[-1][1] < memory.peak, memory
assert sum(memory.at_peak.values()) == memory.peak, memory
assert all("looked_at.py" in line or line.startswith("(") for line in memory.at_peak), memory
times = [at for at, _ in p.memory_timeline["cpu"]]
assert times == sorted(times) and times[0] >= 0, times
assert "at the peak, held by" in p.report()
"""


def test_memory_and_who_holds_the_peak(tmp_path: Path) -> None:
    """In a process of its own, where no pending value of another test gets its memory meanwhile."""
    script = tmp_path / "looked_at.py"
    script.write_text(MEMORY)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr


def test_host_time_by_line() -> None:
    frame = sys._getframe()
    assert line_of_frame(frame).startswith(f"test_profile.py:{frame.f_lineno} test_host_time_by_line")
    seen: list[str] = []

    class Looks(nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append(line_of_frame(sys._getframe()))
            return x
    Looks()(genesis.ones(1))
    assert "forward" in seen[0], "a function of the user's that Genesis calls is the user's"
    made: dict[str, Any] = {"__name__": "made", "line_of_frame": line_of_frame, "sys": sys}
    exec("def made_by_a_dataclass(): return line_of_frame(sys._getframe())", made)
    assert made["made_by_a_dataclass"]().endswith("test_host_time_by_line"), "which no file has"
    made["__name__"] = "__main__"
    assert "made_by_a_dataclass" in made["made_by_a_dataclass"](), "python -c"
    with profile(with_stack=True) as p:
        lines = p._recorder.lines  # type: ignore[union-attr]
        while sum(lines.values()) < 50_000_000:  # until it was seen here for 50 ms
            pass
    assert max(lines, key=lambda line: lines[line]).endswith("test_host_time_by_line")
    assert "The host's time by the line" in p.report()


EVENT = ("name", "key", "count", "time_range", "cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time",
         "device_time_total", "self_device_time_total")
ROW = ("key", "count", "stack", "flops", "cpu_time_str", "cpu_time_total_str", "self_cpu_time_total_str",
       "device_time_str", "device_time_total_str", "self_device_time_total_str", *EVENT[4:])


def test_events_and_rows_answer_to_torchs_names() -> None:
    for library, kind in ((genesis, profile), (torch, torch.profiler.profile)):
        with kind() as p, library.profiler.record_function("part"):
            library.ones(64, 64).matmul(library.ones(64, 64)).sum().item()
        events, rows = p.events(), p.key_averages()
        for event in events:
            assert all(hasattr(event, name) for name in EVENT)
            assert event.cpu_time_total == pytest.approx(event.time_range.elapsed_us(), abs=1e-2)
        assert all(hasattr(row, name) for row in rows for name in ROW)
        assert {row.key for row in events.key_averages()} == {row.key for row in rows} >= {"part"}
        assert events.total_average().self_cpu_time_total > 0 and "part" in events.table(sort_by="cpu_time_total")
        assert events.self_cpu_time_total > 0


def test_lines_and_kernels_for_flame_graphs(tmp_path: Path) -> None:
    with profile(with_stack=True) as p:
        x = genesis.ones(256, 256)
        (x @ x).sum().item()
    p.export_stacks(tmp_path / "stacks.txt", "self_cpu_time_total")
    found = [line.rpartition(" ") for line in (tmp_path / "stacks.txt").read_text().splitlines()]
    assert any("test_profile.py" in stack and stack.endswith(";matmul") for stack, _, _ in found)
    kernels = sum(row.self_cpu_time_total for row in p.key_averages() if row.device)
    assert all(int(time) > 0 for _, _, time in found)
    assert sum(int(time) for _, _, time in found) == pytest.approx(kernels, abs=len(p.key_averages()))
    with pytest.raises(ValueError, match="metric='time' is none of self_cpu_time_total"):
        p.export_stacks(tmp_path / "stacks.txt", "time")


def test_compilation_by_pass() -> None:
    with profile() as p:
        (genesis.ones(3, 7).cumsum(0) * genesis.ones(7).sigmoid()).amax(1).sum().item()
    spans = [event for event in p.events() if getattr(event, "kind", "") in ("compile", "pass")]
    compiled = [span for span in spans if span.kind == "compile"]  # type: ignore[union-attr]
    assert len(compiled) == 1 and {"canonicalize", "group", "plan_memory", "lower"} <= {span.name for span in spans}
    assert sum(s.duration for s in spans if s is not compiled[0]) <= compiled[0].duration
    assert "Compilation of 1 plans" in p.report()


def test_operations_of_ops() -> None:
    from genesis.frontend.recording import read
    x = genesis.zeros(2, 3, 8, 8)
    q = genesis.zeros(2, 4, 16, 8)
    F = nn.functional
    assert flops_of(read(F.conv2d(x, genesis.zeros(5, 3, 3, 3)))) == 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)
    assert flops_of(read(F.scaled_dot_product_attention(q, q, q))) == 4 * (2 * 4) * 16 * 16 * 8
    assert flops_of(read(F.scaled_dot_product_attention(q, q, q, is_causal=True))) == 2 * (2 * 4) * 16 * 16 * 8
    assert flops_of(read(genesis.zeros(2, 3, 4) @ genesis.zeros(2, 4, 5))) == 2 * 2 * 3 * 4 * 5
    assert flops_of(read(genesis.zeros(10, 10).sum())) == 100
    assert flops_of(read(genesis.zeros(4, 5).t())) == 0


@pytest.mark.parametrize("runs", [0, 1, 3])
@pytest.mark.parametrize("compiled", [False, True], ids=["recorded", "compiled"])
def test_operations_of_a_program_that_ran_before(compiled: bool, runs: int) -> None:
    """A read that came before is computed on a way of its own (`engine/short_read.py`), which tells the same."""
    x = genesis.ones(16 + runs, 32)

    def products() -> genesis.Tensor:
        return (x @ x.T).sum()
    program = genesis.compile(products) if compiled else products
    for _ in range(runs):
        program().item()
    with profile() as p:
        program().item()
    assert {row.key: row.flops for row in p.key_averages()}["matmul"] == 2 * 32 * (16 + runs) ** 2
    assert [span for span in p.events() if span.name.startswith("plan of")]


def test_the_roofline() -> None:
    gpu = peaks_of("cuda:0") if ProfilerActivity.CUDA in supported_activities() else None
    for peaks in filter(None, (peaks_of("cpu"), gpu)):
        assert peaks.roofline(int(peaks.bytes), 0, False) == (pytest.approx(1, rel=1e-6), "memory")
        assert peaks.roofline(0, int(peaks.products), True) == (pytest.approx(1, rel=1e-6), "compute")
        assert peaks.roofline(1, int(peaks.others), False)[1] == "compute"


def test_one_profile_at_a_time() -> None:
    with profile() as p, pytest.raises(RuntimeError, match="another profile is on"), profile():
        pass
    with pytest.raises(RuntimeError, match="the profile is not on"):
        p.step()
    with pytest.raises(RuntimeError, match="nothing was recorded yet"):
        profile().key_averages()
    with pytest.raises(ValueError, match="are no activities"):
        profile(activities=["cpu"])  # type: ignore[list-item]
    assert ProfilerAction.NONE.name == "NONE"


def test_a_pretended_gpu(host_driver: Any) -> None:
    """Launches replace graphs while a profile is on, and only then; values are the same."""
    def parts() -> tuple[Any, Any]:
        return genesis.full((4, 8), 0.5, device="cuda", requires_grad=True), genesis.ones(3, 4, device="cuda")

    def step(weight: Any, x: Any) -> float:
        """Six kernels, so that the plan is a graph from its second run on."""
        y = ((x @ weight).softmax(-1) @ weight.t()).softmax(-1) @ weight
        loss = (y * y).sum()
        weight.grad = None
        loss.backward()
        with genesis.no_grad():
            weight.sub_(weight.grad, alpha=0.1)
        return loss.item()
    given = parts()
    plain = [step(*given) for _ in range(4)]
    given = parts()
    losses = [step(*given) for _ in range(2)]
    graphs = host_driver.calls["launch_graph"]
    assert graphs > 0
    with profile(profile_memory=True) as p:
        losses.append(step(*given))
        held = genesis.zeros(1 << 16, device="cuda")
        genesis.eval(held)
    assert host_driver.calls["launch_graph"] == graphs
    assert [*losses, step(*given)] == plain and host_driver.calls["launch_graph"] > graphs
    rows = [row for row in p.key_averages(group_by_stack_n=1) if row.device == "cuda:0"]
    assert rows and all(row.bytes > 0 and row.roofline is not None for row in rows)
    products = [row for row in rows if "matmul" in row.key]
    assert sum(row.flops for row in products) >= 3 * 2 * (3 * 4 * 8), "the products of the forward at least"
    assert any("test_profile.py" in row.line for row in rows)
    kernels = [event for event in p.events() if getattr(event, "device", "") == "cuda:0"]
    assert all(a.start + a.duration <= b.start for a, b in pairwise(kernels)), "one by one"
    assert p._recorded()[0].memory["cuda:0"].peak >= 1 << 18


def test_operations_of_a_training_step_on_a_pretended_gpu(host_driver: Any) -> None:
    """Six for each weight of a product and token: forward two, backward four. The launches know theirs, as the
    program's groups may come in another order when the passes run once more."""
    genesis.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=40, context=16, layers=1, heads=2, dim=16)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = genesis.randint(0, 40, (2, 16), device="cuda")
    for _ in range(2):  # recorded, and as a step that ran before
        with profile() as p:
            loss = model(tokens, tokens)[1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
        products = 6 * tokens.numel() * sum(weight.numel() for name, weight in model.named_parameters()
                                            if weight.ndim == 2 and name != "position")
        found = sum(row.flops for row in p.key_averages() if "matmul" in row.key)
        assert products <= found < 1.01 * products, "with a bias that is added in the same kernel"


def test_operations_of_a_plan_of_all_sizes(host_driver: Any) -> None:
    weight = genesis.full((16, 24), 0.1, device="cuda")
    for rows in (32, 48, 64, 80):  # from the third size on filled in
        x = genesis.full((rows, 16), 0.5, device="cuda")
        genesis.eval(x, weight)
        with profile() as p:
            genesis.eval(x @ weight)
        assert [row.flops for row in p.key_averages()] == [2 * rows * 16 * 24]


@pytest.mark.parametrize("causal", [False, True])
def test_operations_of_attentions_gradient(causal: bool, host_driver: Any) -> None:
    """Five products of the scores' size, and two that both kernels make; causal ones half of each."""
    q, k, v = (genesis.full((1, 2, 32, 16), x, device="cuda", requires_grad=True) for x in (0.1, 0.2, 0.3))
    with profile() as p:
        nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward()
        genesis.eval(q.grad, k.grad, v.grad)
    found = sum(row.flops for row in p.key_averages() if "attention_d" in row.key)
    assert found == (1 if causal else 2) * 7 * (2 * 32 * 32 * 16)


def test_what_the_host_does_between_two_parts_of_a_plan_is_no_kernels(host_driver: Any,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that overwrite memory are started by the engine, when all others are: on a GPU that waits for its host."""
    when: dict[int, float] = {}
    record = host_driver.record_event

    def recorded(event: Any, stream: Any) -> None:
        when[id(event)] = time.perf_counter()
        record(event, stream)
    monkeypatch.setattr(host_driver, "record_event", recorded)
    monkeypatch.setattr(host_driver, "elapsed_ms", lambda a, b: 1e3 * (when[id(b)] - when[id(a)]))
    span = Recorder.span
    monkeypatch.setattr(Recorder, "span", lambda recorder, kind, *rest: (time.sleep(kind == "plan"),
                                                                         span(recorder, kind, *rest)))
    x = genesis.full((8, 16), 0.5, device="cuda")
    total = genesis.zeros(8, device="cuda")
    genesis.eval(x, total)
    with profile() as p:
        total.add_((x.exp() @ x.t()).sum(1))
        genesis.eval(total)
    found = [event.duration for event in p.events() if getattr(event, "device", "") == "cuda:0"]
    assert len(found) > 1 and max(found) < 900_000_000, "the second that it slept"


def test_bytes_of_rows_on_a_pretended_gpu(host_driver: Any) -> None:
    """A look-up reads rows of its table, a token's keys are a row of their cache; each knows how many it moves."""
    table, cache = genesis.zeros(1000, 32, device="cuda"), genesis.zeros(2, 512, 32, device="cuda")
    index, keys = genesis.tensor([3, 5, 900], device="cuda"), genesis.ones(2, 1, 32, device="cuda")
    place = genesis.tensor([7], device="cuda")
    genesis.eval(table, cache, index, keys, place)
    rows = 4 * 32

    def moved(*results: Any) -> int:
        with profile() as p:
            genesis.eval(*[result() for result in results])
        return sum(row.bytes for row in p.key_averages() if row.device)
    assert moved(lambda: table[index]) == 3 * (8 + rows + rows)
    assert moved(lambda: cache.index_copy_(1, place, keys)) == 2 * (rows + rows) + 8
    assert moved(lambda: (table * 2)) == 2 * 1000 * rows
    assert cache[:, 7].sum().item() == 64


def test_what_keeps_a_gpu_busy_is_no_memory_of_the_program(host_driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "HELD_BACK_BYTES", 1 << 20)  # of a GPU of 1 GB
    fills = []
    fill = host_driver.fill
    monkeypatch.setattr(host_driver, "fill", lambda *args: (fills.append(args), fill(*args))[1])
    with profile(profile_memory=True) as p:
        held = genesis.ones(1 << 10, device="cuda") + 1
        genesis.eval(held)
    memory = p._recorder.memory["cuda:0"]  # type: ignore[union-attr]
    assert fills and memory.peak < 1 << 16 and all("test_profile.py" in line for line in memory.at_peak), "by its line"


def test_the_time_that_events_take_is_no_kernels(host_driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which each event takes 3 microseconds, and kernels nothing."""
    when: dict[int, int] = {}
    clock = count(step=3)
    record = host_driver.record_event

    def recorded(event: Any, stream: Any) -> None:
        when[id(event)] = next(clock)
        record(event, stream)
    monkeypatch.setattr(host_driver, "record_event", recorded)
    monkeypatch.setattr(host_driver, "elapsed_ms", lambda a, b: 1e-3 * (when[id(b)] - when[id(a)]))
    x = genesis.full((8, 16), 0.5, device="cuda")
    genesis.eval(x)
    for held_back, taken in ((1 << 30, 3000), (1 << 20, 0)):  # where there is no memory for it nothing is known of it
        monkeypatch.setattr(hooks, "HELD_BACK_BYTES", held_back)
        with profile() as p:
            genesis.eval((x.exp() @ x.t()).softmax(1))
        found = [event.duration for event in p.events() if getattr(event, "device", "") == "cuda:0"]
        assert len(found) > 1 and set(found) == {taken}
