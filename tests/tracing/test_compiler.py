"""The options of `genesis.compile`, `genesis.explain` and `genesis.compiler`."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import random
import threading
from typing import Any

import pytest
import torch
from calls import ramp

import genesis
from genesis import nn
from genesis.compiler import allow_in_graph, disable, is_compiling, reset, set_stance

SCALE = 2.0


def double(x: Any) -> Any:
    return x * 2


# Options

@pytest.mark.parametrize("options", [{}, {"mode": "default"}, {"mode": "reduce-overhead"}, {"backend": "inductor"},
                                     {"dynamic": True}, {"dynamic": False}, {"options": {}}, {"fullgraph": True}])
def test_options_that_mean_something_or_wish_nothing_else(options: dict[str, Any]) -> None:
    for compiled in (genesis.compile(double, **options), genesis.compile(**options)(double)):
        assert [compiled(ramp(1)).item() for _ in range(3)] == [2.0] * 3
        assert compiled.hits == 2


@pytest.mark.parametrize(("options", "sentence"), [
    ({"mode": "fastest"}, "mode='fastest' is unknown"),
    ({"mode": "default", "options": {"epilogue_fusion": True}}, "either mode or options"),
    ({"options": {"epilogue_fusion": True}}, "genesis.config"),
    ({"backend": "cudagraphs"}, "backend='cudagraphs' is not a backend here: replays on a GPU are CUDA graphs"),
    ({"backend": "nope"}, "backend='nope' is unknown"),
    ({"mode": "lite"}, "mode='lite' is not a mode here"),
    ({"backend": lambda graph, inputs: graph}, "no FX graph"),
])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        genesis.compile(double, **options)


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
def test_a_wish_for_timed_kernels_is_told_where_they_are_timed(mode: str) -> None:
    with pytest.warns(UserWarning, match='genesis.config.tune = "max"') as told:
        compiled = genesis.compile(double, mode=mode)
    assert told[0].filename == __file__ and [compiled(ramp(1)).item() for _ in range(2)] == [2.0, 2.0]


def test_a_compiled_module_is_found_where_torchs_holds_it() -> None:
    """Programs save `model._orig_mod`, and load what torch saved of a compiled module."""
    plain, other = genesis.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert not hasattr(plain, "_orig_mod")
    model = genesis.compile(plain)
    assert model._orig_mod is plain and list(model._orig_mod.state_dict()) == ["weight", "bias"]
    saved = {name: genesis.tensor(x.detach().numpy()) for name, x in torch.compile(other).state_dict().items()}
    assert "_orig_mod.weight" in saved
    model.load_state_dict(saved)
    assert model.weight.tolist() == other.weight.tolist()
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict({"_orig_mod.weight": saved["_orig_mod.weight"]})
    model.load_state_dict(genesis.nn.Linear(2, 2).state_dict(), strict=True)


def test_wrong_options() -> None:
    for options in ({"fullgraph": 1}, {"dynamic": "yes"}, {"unknown": 1}):
        with pytest.raises(TypeError):
            genesis.compile(double, **options)
    with pytest.raises(TypeError, match="cannot be called"):
        genesis.compile(3)


def test_the_function_itself() -> None:
    assert genesis.compile(double, disable=True) is double


def test_the_eager_backend_records_each_call() -> None:
    calls: list[bool] = []

    def counted(x: Any) -> Any:
        calls.append(is_compiling())
        return x * 2
    f = genesis.compile(counted, backend="eager")
    assert [f(ramp(1)).item() for _ in range(3)] == [2.0] * 3 and calls == [True] * 3 and f.hits == 0
    assert "backend='eager'" in genesis.explain(f)
    with set_stance("force_eager"):
        f(ramp(1))
    assert calls.pop() is False
    layer = genesis.compile(nn.Linear(1, 1), backend="eager")
    assert layer._orig_mod is layer and layer(ramp(1, 1)).shape == (1, 1) and genesis.explain(layer).captures == 0
    other = copy.deepcopy(layer)
    assert other is not layer and genesis.explain(other)(ramp(1, 1)).captures == 0
    with pytest.raises(RuntimeError, match="a value is read"):
        genesis.compile(lambda x: x * float(x.sum()), backend="eager", fullgraph=True)(ramp(1))
    whole = genesis.compile(double, backend="eager", fullgraph=True)
    assert [whole(ramp(1)).item() for _ in range(2)] == [2.0, 2.0]


# fullgraph

def test_fullgraph_raises_at_the_line_what_would_be_recorded() -> None:
    def reads(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x

    def draws(x: Any) -> Any:
        return x * random.random()

    def takes(x: Any, other: Any) -> Any:
        return x
    for function, why in ((reads, "a value is read"), (draws, "random")):
        compiled = genesis.compile(function, fullgraph=True)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=rf"(?s){why}.*test_compiler.py:\d+"):
                compiled(ramp(2))
    with pytest.raises(RuntimeError, match="object, which cannot be compared"):
        genesis.compile(takes, fullgraph=True)(ramp(1), object())


def test_fullgraph_raises_at_the_first_call_with_a_view() -> None:
    """Without it two calls with views run as they are, to see what they do to the memory of these."""
    held: list[Any] = []

    def draws(x: Any) -> Any:
        return x * random.random()

    def writes(x: Any) -> Any:
        return x.add_(1) * 2

    def returns(x: Any) -> Any:
        return x

    def keeps(x: Any) -> Any:
        held.append(x)
        return x * 2

    def asks(x: Any) -> Any:
        return x * x.stride()[0]
    for function, why in ((draws, "random"), (writes, "it writes to"), (returns, "it returns or keeps"),
                          (keeps, "it returns or keeps"), (asks, "how an argument")):
        compiled, data = genesis.compile(function, fullgraph=True), ramp(4, 2)
        for row in data[1:3], data[0], data.t()[1]:
            with pytest.raises(RuntimeError, match=rf"(?s){why}.*test_compiler.py:\d+"):
                compiled(row)
    compiled = genesis.compile(double, fullgraph=True)
    assert [compiled(row).tolist() for row in ramp(4, 2)] == [[2.0, 4.0], [6.0, 8.0], [10.0, 12.0], [14.0, 16.0]]
    assert genesis.explain(compiled).captures == 1 and genesis.explain(compiled).hits == 3


def test_fullgraph_of_what_is_captured_is_as_without() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.state = 0, None

        def forward(self, x: Any) -> Any:
            self.calls += 1
            self.state = x if self.state is None else self.state + x
            return self.state * 2
    module = genesis.compile(Counting(), fullgraph=True)
    assert [module(ramp(1)).item() for _ in range(5)] == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert module.calls == 5 and genesis.explain(module).hits == 3
    lengths = genesis.compile(double, fullgraph=True)
    for length in range(1, 40):  # more than would be captured without
        lengths(ramp(length))
    assert genesis.explain(lengths).captures + genesis.explain(lengths).hits == 39


# explain

def test_an_explanation_names_the_guard_with_both_values() -> None:
    global SCALE
    settings = {"rate": 1}

    @genesis.compile
    def f(x: Any, flag: bool = True) -> Any:
        return x * SCALE * settings["rate"] * (2 if flag else 3)
    try:
        f(ramp(2))
        SCALE = 3.0
        f(ramp(2))
        settings["rate"] = 5
        f(ramp(2))
        f(ramp(4))
        f(ramp(4), False)
        with genesis.no_grad():
            f(ramp(4), False)
        f(ramp(4), False)
    finally:
        SCALE = 2.0
    explained = genesis.explain(f)
    assert (explained.captures, explained.hits) == (6, 1)
    assert [(x.guard, x.before, x.now) for x in explained.recaptures] == [
        ("SCALE", "2.0", "3.0"), ("settings['rate']", "1", "5"), ("argument x", "tensor f32[2]", "tensor f32[4]"),
        ("argument flag", "missing", "False"), ("grad mode", "True", "False")]
    assert "captured again: SCALE: 2.0 → 3.0" in explained


def test_explaining_a_call() -> None:
    explanation = genesis.explain(double)
    assert "is not compiled" in explanation and explanation.captures == 0
    first = explanation(ramp(2))
    assert (first.captures, first.hits, first.recaptures) == (1, 0, ())
    assert (first(ramp(2)).hits, first(ramp(3)).recaptures[0].guard) == (1, "argument x")

    net = nn.Linear(2, 2)
    assert genesis.explain(net)(ramp(1, 2)).captures == 1
    assert type(net) is nn.Linear  # it was not compiled itself
    noisy = genesis.explain(lambda x: x * float(x.sum()))(ramp(2))
    assert "a value is read" in noisy.recorded[0] and noisy.captures == 0

    compiled = genesis.compile(double)
    compiled(ramp(1))
    assert genesis.explain(compiled)(ramp(1)).hits == compiled.hits == 1


def test_an_explanation_computes_nothing() -> None:
    class Holder:
        state: Any = None
    holder = Holder()

    def f(x: Any) -> Any:
        holder.state = (x, x * 2) if holder.state is None else (holder.state[0] + x, x * 3)
        return x
    compiled = genesis.compile(f)
    for _ in range(3):
        compiled(ramp(1))
    before = holder.state[0].storage.settled
    assert "missing → (tensor f32[1], tensor f32[1])" in genesis.explain(compiled)
    assert holder.state[0].storage.settled == before


# genesis.compiler

def test_names_and_their_order_of_arguments_are_torchs() -> None:
    import inspect
    for name in ("disable", "is_compiling", "reset", "allow_in_graph", "set_stance"):
        ours, theirs = (inspect.signature(getattr(lib.compiler, name)) for lib in (genesis, torch))
        assert list(ours.parameters) == list(theirs.parameters), name


def test_is_compiling_in_every_call_of_a_compiled_function() -> None:
    seen: list[bool] = []

    def recorded(x: Any) -> Any:
        seen.append(is_compiling())
        return x * float(x.sum())
    compiled = genesis.compile(recorded)
    for _ in range(5):
        compiled(ramp(1))
    assert seen == [True] * 5 and not is_compiling()
    others: list[bool] = []

    def asks_elsewhere(x: Any) -> Any:
        thread = threading.Thread(target=lambda: others.append(is_compiling()))
        thread.start()
        thread.join()
        return x
    genesis.compile(asks_elsewhere)(ramp(1))
    assert others == [False]


def test_a_disabled_function_is_recorded_around_and_what_it_calls_is_compiled() -> None:
    calls: list[bool] = []

    @disable
    def log(x: Any) -> Any:
        calls.append(is_compiling())
        return inner(x)
    inner = genesis.compile(lambda x: x * (2 if is_compiling() else 5))
    outer = genesis.compile(lambda x: log(x) + 1)
    assert [log(ramp(1)).item() for _ in range(4)] == [2.0] * 4 and inner.hits == 3
    assert [outer(ramp(1)).item() for _ in range(4)] == [3.0] * 4
    assert calls == [False] * 8 and outer.hits == 0 and inner.hits > 3
    assert "not to be compiled" in genesis.explain(outer)
    with pytest.raises(RuntimeError, match=r"not to be compiled at test_compiler.py:\d+"):
        genesis.compile(lambda x: log(x) + 1, fullgraph=True)(ramp(1))
    assert disable(recursive=True)(double)(ramp(1)).item() == 2.0
    assert disable(double, recursive=False)(ramp(1)).item() == 2.0
    with pytest.raises(TypeError):
        disable(3)


def test_the_reason_of_a_disabled_function_is_told() -> None:
    quiet = disable(double, reason="it prints")
    with pytest.raises(RuntimeError, match=r"not to be compiled \(it prints\) at"):
        genesis.compile(lambda x: quiet(x), fullgraph=True)(ramp(1))


def test_a_compiled_function_that_is_disabled_is_the_function_itself() -> None:
    class Model:
        @genesis.compile
        def step(self, x: Any) -> Any:
            return x + (1 if is_compiling() else 2)
    model, layer = Model(), nn.Linear(1, 1)
    layer.compile()
    for disabled in (disable(genesis.compile(lambda x: x + (1 if is_compiling() else 2))), disable(model.step)):
        assert [disabled(ramp(1)).item() for _ in range(2)] == [3.0, 3.0]
    assert model.step(ramp(1)).item() == 2.0
    compiled = layer.forward
    disable(layer)(ramp(1, 1))
    assert genesis.explain(compiled).captures == 0
    net = disable(genesis.compile(nn.Linear(1, 1)))
    assert net(ramp(1, 1)).shape == (1, 1)


def test_a_disabled_class_is_a_class() -> None:
    @disable
    class Scale:
        def __init__(self, by: float):
            self.by, self.compiling = by, is_compiling()

        def __call__(self, x: Any) -> Any:
            return x * (self.by if not is_compiling() else 100)

    class Twice(Scale):
        pass

    @disable
    class Made:
        def __new__(cls, by: int) -> Any:
            return object.__new__(cls)

    @disable
    class Layer(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * (100 if is_compiling() else 3)
    scale, layer = Twice(2.0), Layer()
    assert isinstance(scale, Scale) and isinstance(layer, Layer) and isinstance(Made(1), Made)
    f = genesis.compile(lambda x: scale(x) + layer(x))
    assert [f(ramp(1)).item() for _ in range(3)] == [5.0] * 3 and f.hits == 0
    made: list[Any] = []
    g = genesis.compile(lambda x: (made.append(Scale(2.0)), x * 2)[1])
    assert g(ramp(1)).item() == 2.0 and not made[0].compiling


def test_an_allowed_function_is_captured_whatever_its_python_does() -> None:
    calls: list[int] = []

    @allow_in_graph
    def noisy(x: Any) -> Any:
        calls.append(len(str(random.random())))
        return x * 3
    f = genesis.compile(lambda x: noisy(x) + random_free(x), fullgraph=True)

    def random_free(x: Any) -> Any:
        return x
    assert [f(ramp(1)).item() for _ in range(4)] == [4.0] * 4
    assert len(calls) == 1 and f.hits == 3
    noisy(ramp(1))
    assert len(calls) == 2
    assert allow_in_graph([double, noisy]) == [double, noisy]
    with pytest.raises(TypeError):
        allow_in_graph(3)


def test_classes_and_objects_that_are_allowed() -> None:
    @allow_in_graph
    class Triple(genesis.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * (3 + 0 * len(str(random.random())))

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * (5 + 0 * len(str(random.random())))

    class Noisy:
        def __call__(self, x: Any) -> Any:
            return x * (2 + 0 * len(str(random.random())))
    noisy = allow_in_graph(Noisy())
    weight = ramp(2).requires_grad_()

    @genesis.compile
    def f(x: Any) -> Any:
        weight.grad = None
        noisy(Triple.apply(x * weight)).sum().backward()
        with genesis.no_grad():
            weight.sub_(weight.grad)
    for _ in range(5):
        f(ramp(2))
    assert weight.tolist() == [-49.0, -98.0] and f.hits > 0
    for allowed in (functools.partial(double), genesis.compile(double), nn.ReLU()):
        assert allow_in_graph(allowed) is allowed


def test_a_constant_result() -> None:
    calls: list[int] = []

    @genesis.compiler.assume_constant_result
    def width() -> int:
        calls.append(len(str(random.random())))
        return 5
    f = genesis.compile(lambda x: x * width(), fullgraph=True)
    assert [f(ramp(1)).item() for _ in range(3)] == [5.0] * 3 and len(calls) == 1
    nested = genesis.compiler.nested_compile_region(double)
    assert genesis.compiler.nested_compile_region()(double)(ramp(1)).item() == nested(ramp(1)).item() == 2.0


def test_reset_forgets_captures() -> None:
    f, recorded = genesis.compile(double), genesis.compile(lambda x: x * float(x.sum()))
    for _ in range(2):
        f(ramp(1))
        recorded(ramp(1))
    reset()
    assert "f32" not in genesis.explain(f) and (f.hits, genesis.explain(f).captures) == (0, 0)
    assert genesis.explain(recorded).recorded == ()
    assert [f(ramp(1)).item() for _ in range(2)] == [2.0] * 2 and f.hits == 1


def test_stances() -> None:
    f = genesis.compile(double)
    with set_stance("force_eager"):
        assert f(ramp(1)).item() == 2.0 and genesis.explain(f).captures == 0
    f(ramp(1))
    with set_stance("eager_on_recompile"):
        f(ramp(1))
        f(ramp(2))
    assert (f.hits, genesis.explain(f).captures) == (1, 1)

    @set_stance("force_eager")
    def eagerly(x: Any) -> Any:
        return f(x)
    eagerly(ramp(3))
    assert genesis.explain(f).captures == 1
    f(ramp(3))
    assert genesis.explain(f).captures == 2
    try:
        set_stance("eager_then_compile")
        late = genesis.compile(double)
        late(ramp(1))
        assert genesis.explain(late).captures == 0
        late(ramp(1))
        assert genesis.explain(late).captures == 1
    finally:
        set_stance("default")


def test_a_stance_that_fails_on_a_capture_says_what_has_changed() -> None:
    f, settings = genesis.compile(lambda x: x * (2 if settings["twice"] else 3)), {"twice": True}
    with set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="no call was captured before"):
        f(ramp(2))
    f(ramp(2))
    with set_stance("fail_on_recompile"):
        assert f(ramp(2)).tolist() == [2.0, 4.0]
        with pytest.raises(RuntimeError, match=r"argument x: tensor f32\[2\] → tensor f32\[3\]"):
            f(ramp(3))
        settings["twice"] = False
        with pytest.raises(RuntimeError, match=r"settings\['twice'\]: True → False"):
            f(ramp(2))
        settings["twice"] = True
        f(ramp(2))
        data = ramp(3, 2)
        with pytest.raises(RuntimeError, match=r"arguments that are views: none → tensor f32\[2\]"):
            f(data[1])
    assert genesis.explain(f).captures == 1 and f.hits == 2
    assert f(ramp(3)).tolist() == [2.0, 4.0, 6.0]


def test_a_stance_that_fails_on_a_capture_lets_calls_be_recorded_that_were() -> None:
    recorded = genesis.compile(lambda x: x * float(x.sum()))
    recorded(ramp(1))
    with set_stance("fail_on_recompile"):
        assert [recorded(ramp(1)).item() for _ in range(80)] == [1.0] * 80


def test_a_call_that_a_stance_runs_as_it_is_is_not_compiling() -> None:
    f = genesis.compile(lambda x: x + is_compiling())
    with set_stance("eager_on_recompile"):
        assert f(ramp(1)).item() == 1.0
    assert f(ramp(1)).item() == 2.0
    with set_stance("eager_on_recompile"):
        assert [f(ramp(1)).item(), *f(ramp(2)).tolist()] == [2.0, 1.0, 2.0]
        assert f(ramp(4, 2)[1]).tolist() == [3.0, 4.0]
    late = genesis.compile(lambda x: x + is_compiling())
    with set_stance("eager_then_compile"):
        assert [late(ramp(1)).item() for _ in range(3)] == [1.0, 2.0, 2.0] and late.hits == 1


def test_a_stance_with_another_backend() -> None:
    f = genesis.compile(double)
    with set_stance(force_backend="inductor"):
        assert [f(ramp(1)).item() for _ in range(2)] == [2.0, 2.0] and f.hits == 1
    with set_stance(force_backend="eager"):
        assert f(ramp(1)).item() == 2.0 and f.hits == 1
    assert f(ramp(1)).item() == 2.0 and f.hits == 2
    with pytest.raises(RuntimeError, match="one of genesis, inductor, eager"):
        set_stance(force_backend="cudagraphs")
    with pytest.raises(RuntimeError, match="with the stance default alone"):
        set_stance("eager_on_recompile", force_backend="eager")


@pytest.mark.parametrize("options", [{"stance": "aot_eager_then_compile"}, {"stance": "sometimes"},
                                     {"skip_guard_eval_unsafe": True}, {"force_backend": "aot_eager"}])
def test_stances_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError):
        set_stance(**options)
    with pytest.raises(RuntimeError, match="inside a compiled function"):
        genesis.compile(lambda x: set_stance("default") and x)(ramp(1))


def test_a_compiled_method_is_a_method() -> None:
    class Model:
        scale = 2.0

        @genesis.compile
        def step(self, x: Any) -> Any:
            """Scale."""
            return x * self.scale
    model = Model()
    assert inspect.ismethod(model.step) and model.step.__self__ is model and model.step == model.step
    assert (model.step.__name__, model.step.__doc__) == ("step", "Scale.")
    assert pickle.loads(pickle.dumps(genesis.compile(double))) is not None
    outer = genesis.compile(lambda x: model.step(x) + 1)
    assert [outer(ramp(1)).item() for _ in range(3)] == [3.0] * 3 and outer.hits == 2
    model.scale = 3.0
    assert outer(ramp(1)).item() == 4.0
