"""Details of autograd that programs rely on: accumulation, writes, modes, errors, the graph behind a value."""

from __future__ import annotations

import copy
import threading

import pytest
from torch_programs import check

PROGRAMS = []


def program(function):
    """Lists the function as a program to compare."""
    PROGRAMS.append(function)
    return function


def leaves(T):
    """The function that makes a leaf of numbers."""
    return lambda *values: T.tensor(list(values), requires_grad=True)


def said(*actions):
    """For each (action, words): the error's type and whether its first line, which shows no source, has the words."""
    found = []
    for action, words in actions:
        try:
            action()
        except Exception as error:
            found.append((type(error).__name__, words, words.lower() in str(error).splitlines()[0].lower()))
        else:
            found.append("no error")
    return found


# Accumulation

@program
def gradients_with_a_graph_accumulate(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    (x ** 3).sum().backward(create_graph=True)
    (x ** 2).sum().backward(create_graph=True)
    g = x.grad
    x.grad = None
    g.sum().backward()
    return g, x.grad


@program
def several_roots_are_one_backward(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    seen = []
    y = x * x
    y.register_hook(lambda g: seen.append(g.clone()))
    T.autograd.backward([y.sum(), (y * 3).sum()])
    return seen, x.grad


@program
def several_roots_with_weights(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    T.autograd.backward((x * 2, x * 3), (T.ones(2), T.tensor([1.0, 0.0])))
    return x.grad


@program
def the_same_gradient_tensor_is_written_to(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    x.sum().backward()
    g = x.grad
    x.sum().backward()
    return g is x.grad, g


@program
def backward_to_a_computed_input(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    y = x * 2
    (y * 3).sum().backward(inputs=[y], retain_graph=True)
    (y * y).sum().backward(inputs=[y, x])
    return y.grad, x.grad


@program
def under_no_grad_backward_works(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    y = (x * x).sum()
    with T.no_grad():
        y.backward()
    return x.grad


@program
def a_leaf_that_wants_no_gradient_any_more_gets_none(T, nn, optim, np):
    x, w = leaves(T)(1.0), leaves(T)(1.0)
    y, z = x * 2, w * 3
    x.requires_grad_(False)
    w.requires_grad_(False).requires_grad_()
    (y + z).sum().backward()
    return x.grad is None, w.grad


@program
def a_leaf_that_is_gone(T, nn, optim, np):
    x, w = leaves(T)(1.0), leaves(T)(2.0)
    y = (x * 2 * w).sum()
    del x
    y.backward()
    return w.grad


@program
def a_gradient_in_the_leafs_dtype(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    (x.half() * 2).float().sum().backward()
    return x.grad


@program
def what_may_be_a_gradient(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    return said((lambda: setattr(x, "grad", T.ones(3)), "assign a gradient of size '[3]'"),
                (lambda: setattr(x, "grad", T.ones(2, dtype=T.float64)), "assign a gradient with dtype"),
                (lambda: setattr(x, "grad", 3), "assigned grad expected to be a Tensor or None but got grad"),
                (lambda: setattr(x, "grad", x), "can't assign Variable as its own grad"),
                (lambda: setattr(x, "grad", T.ones(2)), "")), x.grad


@program
def a_gradient_that_is_deleted_is_none(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    x.sum().backward()
    found = [x.grad]
    del x.grad
    found.append(x.grad is None)
    (x * 3).sum().backward()
    return found, x.grad


# grad and its arguments

@program
def inputs_without_influence(T, nn, optim, np):
    x, y = leaves(T)(1.0, 2.0), leaves(T)(3.0)
    g, nothing = T.autograd.grad(x.sum(), (x, y), allow_unused=True)
    return g, nothing is None, T.autograd.grad(x.sum(), (x, y), materialize_grads=True)


@program
def weights_in_batches(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    return T.autograd.grad((x ** 2, x.sum()), x, (T.eye(2), T.ones(2)), is_grads_batched=True)


@program
def weights_in_batches_through_a_function(T, nn, optim, np):
    class Scaled(T.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * 5
    x = leaves(T)(1.0, 2.0)
    return T.autograd.grad(Scaled.apply(x), x, T.eye(2), is_grads_batched=True)


@program
def errors_of_grad(T, nn, optim, np):
    x, y = leaves(T)(1.0, 2.0), leaves(T)(1.0)
    grad = T.autograd.grad
    return said((lambda: grad((x * 1).sum(), y), "appears to not have been used in the graph"),
                (lambda: grad((x * 1).sum(), T.ones(1)), "One of the differentiated Tensors does not require grad"),
                (lambda: grad(x * 1, x), "grad can be implicitly created only for scalar outputs"),
                (lambda: grad(x * 1, x, T.ones(3)), "mismatch in shape"),
                (lambda: grad(T.ones(1), x), "element 0 of tensors does not require grad and does not have a grad_fn"),
                (lambda: grad(x.sum(), []), "`inputs` argument to `grad()` cannot be empty"),
                (lambda: x.sum().backward(inputs=[]), "`inputs` argument to `backward()` cannot be empty"),
                (lambda: grad(x.sum(), x, materialize_grads=True, allow_unused=False), "Expected allow_unused to be"),
                (lambda: (x * 1).backward(), "grad can be implicitly created only for scalar outputs"),
                (lambda: T.ones(2, dtype=T.int64).sum().backward(), "does not require grad"))


@program
def grad_frees_its_graph(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    y, z = (x * x).sum(), (x * x * 2).sum()
    T.autograd.grad(y, x)
    T.autograd.grad(z, x, retain_graph=True)
    found = T.autograd.grad(z, x)
    return found, said((lambda: T.autograd.grad(y, x), "Trying to backward through the graph a second time"),
                       (lambda: z.backward(), "Trying to backward through the graph a second time"))


# Writes and views

@program
def writes_through_views_of_a_computed_value(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0, 3.0)
    y = x * 2
    y[1:].mul_(3)
    y[0] = 5
    (y * y).sum().backward()
    return y, x.grad


@program
def a_view_sees_writes_to_its_base(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0, 3.0)
    y = x * 2
    v = y[1:]
    y.mul_(3)
    (v * v).sum().backward()
    return v, x.grad, v.grad_fn is None


@program
def a_constant_that_a_value_is_written_to(T, nn, optim, np):
    z, x = T.zeros(2, 2), leaves(T)(1.0, 2.0)
    z[0].copy_(x)
    z.select(1, 1).add_(x)
    kind = z.requires_grad, z.is_leaf
    (z * z).sum().backward()
    return kind, z, x.grad


@program
def views_made_without_gradients(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    y = x * 2
    with T.no_grad():
        made = x[0], x.view(2), y[0], T.ones(2, requires_grad=True), x * 2
    return [v.requires_grad for v in made], [v.is_leaf for v in made[3:]]


@program
def writes_to_leaves(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    errors = said((lambda: x.add_(1), "a leaf Variable that requires grad is being used in an in-place operation"),
                  (lambda: x[0].add_(1), "a view of a leaf Variable that requires grad is being used in an in-place"),
                  (lambda: x.zero_(), "a leaf Variable"), (lambda: x.__setitem__(0, 1.0), "a leaf Variable"),
                  (lambda: x.detach().add_(1), ""), (lambda: x.data.add_(1), ""))
    with T.no_grad():
        x.mul_(2)
    return errors, x


@program
def detached_values(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    y, z = x * 2, x * 2
    y.detach().add_(1)
    z.detach_()
    return (y, z.requires_grad, z.is_leaf, z.grad_fn,
            said((lambda: (x * 2)[0].detach_(), "Can't detach views in-place")))


@program
def what_may_require_a_gradient(T, nn, optim, np):
    x = leaves(T)(1.0)
    y = x * 2
    words = "floating point"
    return said((lambda: T.ones(2, dtype=T.int64).requires_grad_(), words),
                (lambda: T.tensor([1, 2], requires_grad=True), words),
                (lambda: T.arange(3, requires_grad=True), words),
                (lambda: y.requires_grad_(False), "you can only change requires_grad flags of leaf variables"),
                (lambda: setattr(y, "requires_grad", False), "you can only change requires_grad flags of leaf"),
                (lambda: y.requires_grad_(), ""))


@program
def what_is_a_leaf(T, nn, optim, np):
    x = leaves(T)(1.0)
    made = [x, x * 1, T.ones(1), x.detach(), T.ones(1) * 2, x[0], x.new_tensor([2.0], requires_grad=True),
            T.zeros_like(x), T.zeros_like(x, requires_grad=True), x.new_zeros(1), copy.deepcopy(x)]
    return [(y.is_leaf, y.requires_grad) for y in made], said(
        (lambda: copy.deepcopy(x * 2), "Only Tensors created explicitly by the user"))


@program
def an_out_that_would_have_a_gradient(T, nn, optim, np):
    x, out = leaves(T)(1.0, 2.0), T.zeros(2)
    return said((lambda: T.mul(x, x, out=out), "don't support automatic differentiation"))


# Modes

@program
def the_mode_is_a_threads_own(T, nn, optim, np):
    seen = []
    with T.no_grad():
        thread = threading.Thread(target=lambda: seen.append(T.is_grad_enabled()))
        thread.start()
        thread.join()
        seen.append(T.is_grad_enabled())
    return seen


@program
def decorated_generators_and_functions(T, nn, optim, np):
    @T.no_grad()
    def steps():
        got = None
        for _ in range(3):
            got = yield T.is_grad_enabled(), got

    @T.set_grad_enabled(False)
    def off():
        return T.is_grad_enabled()

    @T.enable_grad()
    def on():
        return T.is_grad_enabled()

    @T.no_grad
    def bare():
        return T.is_grad_enabled()

    @T.inference_mode()
    def inferring():
        return T.is_inference_mode_enabled(), T.is_grad_enabled()
    run = steps()
    seen = [next(run), T.is_grad_enabled(), run.send(5), T.is_grad_enabled()]
    run.close()
    with T.no_grad():
        seen += [on(), T.is_grad_enabled()]
    return seen, off(), bare(), inferring(), T.is_grad_enabled()


@program
def a_generators_errors_and_its_result(T, nn, optim, np):
    @T.no_grad()
    def steps():
        try:
            yield 1
        except KeyError:
            yield T.is_grad_enabled()
        return 7
    run = steps()
    seen = [next(run), run.throw(KeyError())]
    try:
        next(run)
    except StopIteration as end:
        seen.append(end.value)
    return seen, T.is_grad_enabled()


@program
def modes_in_modes(T, nn, optim, np):
    seen = []
    T.set_grad_enabled(False)
    seen.append(T.is_grad_enabled())
    T.set_grad_enabled(True)
    with T.set_grad_enabled(False):
        with T.set_grad_enabled(True):
            seen.append(T.is_grad_enabled())
        seen.append(T.is_grad_enabled())
        with T.inference_mode(False):
            seen.append(T.is_grad_enabled())
    return seen, T.is_grad_enabled()


@program
def values_of_inference_mode(T, nn, optim, np):
    leaf = leaves(T)
    with T.inference_mode():
        i = T.ones(2)
        inside = i.is_inference(), T.is_inference_mode_enabled(), (leaf(1.0) * 2).requires_grad, T.is_grad_enabled()
        i.add_(1)
        with T.inference_mode(False):
            normal = T.ones(1).is_inference()
    x = leaf(1.0, 2.0)
    (x + i).sum().backward()
    i.clone().add_(1)
    return (inside, normal, (i * 2).is_inference(), i.clone().is_inference(), x.grad,
            said((lambda: i.requires_grad_(), "Setting requires_grad=True on inference tensor outside InferenceMode"),
                 (lambda: i.add_(1), "Inplace update to inference tensor outside InferenceMode is not allowed")))


# Hooks and functions, and the mode inside

@program
def the_order_of_a_leafs_hooks_and_what_they_may_do(T, nn, optim, np):
    x, order = leaves(T)(1.0), []
    x.register_post_accumulate_grad_hook(lambda leaf: (order.append("after"), setattr(leaf, "grad", None))[0])
    x.register_hook(lambda g: order.append("before"))
    (x * 2).sum().backward()
    return order, x.grad is None


@program
def gradients_are_tracked_in_hooks_of_a_backward_with_a_graph(T, nn, optim, np):
    x, seen = leaves(T)(1.0), []
    y = x * 2
    y.register_hook(lambda g: seen.append(T.is_grad_enabled()))
    y.sum().backward(retain_graph=True)
    T.autograd.grad(y.sum(), x, create_graph=True)
    return seen


@program
def an_error_in_a_hook_is_the_callers(T, nn, optim, np):
    def fail(g):
        raise KeyError("boom")
    y = leaves(T)(1.0) * 2
    y.register_hook(fail)
    return said((lambda: y.sum().backward(), "boom"))


@program
def a_backward_in_a_backward(T, nn, optim, np):
    class Inner(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with T.enable_grad():
                z = x.detach().requires_grad_()
                (z * z).sum().backward()
            return z.grad * g
    x = leaves(T)(2.0)
    Inner.apply(x).sum().backward()
    return x.grad


@program
def a_hook_on_several_gradients(T, nn, optim, np):
    x, y, seen, first = leaves(T)(1.0), leaves(T)(2.0), [], []
    register = T.autograd.graph.register_multi_grad_hook
    handle = register((x, y), lambda gs: seen.append([None if g is None else g.clone() for g in gs]))
    register((x, y), lambda g: first.append(1), mode="any")
    (x * 2 + y * 3).sum().backward()
    (x * 2).sum().backward()
    handle.remove()
    (x + y).sum().backward()
    return [[g is None for g in gs] for gs in seen], seen[0], seen[1][0], first


# The graph behind a value

@program
def what_computed_a_value(T, nn, optim, np):
    x, w = leaves(T)(1.0, 2.0), leaves(T)(2.0, 3.0)
    total = (x * w + 1).exp().sum().grad_fn
    exp, at = total.next_functions[0]
    add = exp.next_functions[0][0]
    mul = add.next_functions[0][0]
    ends = [end for end, _ in mul.next_functions]
    named = [(f.name(), type(f).__name__) for f in (total, exp, add, mul, *ends)]
    return (named, at, add.next_functions[1], ends[0].variable is x,
            ends[1].variable is w, x.grad_fn, T.ones(1).grad_fn, mul == add.next_functions[0][0], mul == add)


@program
def a_freed_result_is_printed_as_before(T, nn, optim, np):
    x = leaves(T)(1.0, 2.0)
    losses = [-(x * x).mean(), x.exp().sum(), (x * 2).max(0)[0]]
    names = [loss.grad_fn.name() for loss in losses]
    assert losses[0].item() == -2.5
    for loss in losses:
        loss.backward()
    return names[:2], [loss.grad_fn.name() for loss in losses[:2]], repr(losses[0]), losses[2].grad_fn is not None


@program
def what_computed_a_functions_result(T, nn, optim, np):
    class Square(T.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            ctx.save_for_backward(x)
            ctx.power = n
            return x ** n

        @staticmethod
        def backward(ctx, g):
            return g, None
    x = leaves(T)(3.0)
    made = Square.apply(x, 2).grad_fn
    return made.name(), type(made).__name__, made.power, made.saved_tensors, made.next_functions[0][0].variable is x


# torch.autograd.functional

@program
def derivatives_of_functions(T, nn, optim, np):
    F, x, v = T.autograd.functional, T.tensor([1.0, 2.0]), T.tensor([1.0, 0.0])

    def cubes(x):
        return (x ** 3).sum()
    w = leaves(T)(1.0, 2.0)
    (F.jacobian(lambda x: x ** 3, w, create_graph=True) ** 2).sum().backward()
    return (F.jacobian(lambda x: x ** 2, x), F.hessian(cubes, x), F.vjp(lambda x: x ** 2, x, v), F.vjp(cubes, x),
            F.jvp(lambda x: x ** 2, x, v), F.hvp(cubes, x, v), F.vhp(cubes, x, v),
            F.jacobian(lambda a, b: (a * b, a.sum()), (x, v)), F.hessian(lambda a, b: (a * b).sum(), (x, v)), w.grad,
            F.jacobian(lambda a, b: a * 2, (x, v)))


@program
def errors_of_derivatives_of_functions(T, nn, optim, np):
    F, x, v = T.autograd.functional, T.tensor([1.0, 2.0]), T.tensor([1.0, 0.0])
    return said((lambda: F.vjp(lambda x: x ** 2, x), "The vector v can only be None if the user-provided function"),
                (lambda: F.jvp(lambda x: x ** 2, x), "The vector v can only be None if the input to the user-provided"),
                (lambda: F.vjp(lambda x: x ** 2, x, T.ones(3)), "v has invalid size: should be"),
                (lambda: F.hessian(lambda x: x, x), "should contain a single element"),
                (lambda: F.jacobian(lambda x: 3, x), "must be either a Tensor or a tuple of Tensors"),
                (lambda: F.jacobian(lambda a, b: a * 2, (x, v), strict=True), "independent of input 1"),
                (lambda: F.jacobian(lambda x: x.detach() * 2, x, strict=True), "Output 0 of the user-provided"))


# Checks

@program
def checks_of_gradients(T, nn, optim, np):
    x = T.tensor([0.5, 2.0], dtype=T.float64, requires_grad=True)
    right, wrong = (lambda x: x.sin() * x), (lambda x: x.detach() * x)
    return (T.autograd.gradcheck(right, x), T.autograd.gradcheck(right, (x,)), T.autograd.gradgradcheck(right, x),
            T.autograd.gradcheck(wrong, x, raise_exception=False),
            T.autograd.gradgradcheck(wrong, x, raise_exception=False),
            said((lambda: T.autograd.gradcheck(wrong, x), "Jacobian mismatch for output 0 with respect to input 0"),
                 (lambda: T.autograd.gradcheck(right, x.detach()), "expects at least one input tensor to require")))


@program
def anomaly_mode_names_the_op(T, nn, optim, np):
    x = leaves(T)(0.0, 1.0)

    def run():
        with T.autograd.detect_anomaly():
            ((x * 0) / (x * 0)).sum().backward()
    return said((run, "Function 'DivBackward0' returned nan values"))


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_program(run):
    check(run)
