"""`Optimizer`: parameter groups, state, and the step that ends an iteration.

A subclass is written by either of two protocols. By torch's it overrides `step`, and makes its state there: it writes
to the parameters under `no_grad`, and ending the step is done around it. By ours it says what a parameter's state is
(`initial_state`) and records an update of many parameters (`update`), which the `step` here calls.

A step records one op for all parameters of a group that share dtype and device, whatever their
number; hyperparameters are inputs of the plan, so a new learning rate compiles nothing. State is
allocated when a parameter is added: the first step and the second are the same program.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from genesis.frontend import session
from genesis.frontend.at_once import Change
from genesis.frontend.engine_protocol import engine
from genesis.frontend.recording import emit, read_all
from genesis.frontend.session import upcoming_numbers
from genesis.frontend.tensor import Tensor, clear_gradients
from genesis.ir.errors import failure
from genesis.ir.node import Op
from genesis.ir.ops.control import results_of
from genesis.ir.suggest import check_keywords, suggesting
from genesis.nn.modules.hooks import RemovableHandle
from genesis.optim import hooks
from genesis.optim.groups import Group, check_parameter, distinct_parameters, with_names_apart
from genesis.optim.hooks import (
    AFTER,
    BEFORE,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from genesis.optim.state_dict import state_dict_of, take_over
from genesis.optim.stepping import ending, stepped
from genesis.optim.writes import Writes
from genesis.runtime.contexts import Switched, Temporary

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

ParamsT = Iterable[Any]
params_t = ParamsT  # torch's names of what optimizers take, of now and of before, for annotations


class _Required:
    """The class of `required`."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()
"""What a user's optimizer has in its defaults for an option that each group must give."""


class Optimizer:
    """The base of all optimizers. A subclass overrides `step`, as in torch, or `initial_state` and `update`.

    >>> import genesis
    >>> class Plain(Optimizer):
    ...     def __init__(self, params, lr):
    ...         super().__init__(params, {"lr": lr})
    ...     @genesis.no_grad()
    ...     def step(self, closure=None):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 if p.grad is not None:
    ...                     self.state[p]["step"] = self.state[p].get("step", 0) + 1
    ...                     p.add_(p.grad, alpha=-group["lr"])
    >>> w = genesis.tensor([1.0], requires_grad=True)
    >>> optimizer = Plain([w], lr=0.25)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.item()
    0.5

    Args:
        params: parameters, pairs of a name and a parameter, or dictionaries {"params": ..., option: value} of groups.
        defaults: the options of groups that do not set their own.

    Attributes:
        param_groups: the groups' options, and their parameters under "params".
        state: parameter → its state by name; an empty one for a parameter that has none yet.

    Raises:
        ValueError: no parameters, one in two groups, or a tensor that was computed.
        TypeError: something that is not a tensor.
    """

    counted: tuple[str, ...] = ("step",)
    """The names of the state that Python counts."""

    by_element = True
    """Whether an element's step follows from its own gradients: then a rank's part of a parameter is as good as the
    whole."""

    shows_first_state = False
    """Whether a parameter has a state before its first step, as users see it: of torch's only Adagrad's have."""

    _ahead: dict[Any, dict[str, Any]]  # see `make_ahead`
    _writes: Writes | None = None
    _noted: tuple[Change, Callable[[], Any]] | None = None

    def __init__(self, params: Iterable[Any], defaults: Group):
        self.defaults = defaults
        self.param_groups: list[Group] = []
        vars(self)["state"] = defaultdict(dict)
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            f"{type(params).__name__}")
        listed = list(params)
        if not listed:
            raise ValueError("optimizer got an empty parameter list")
        for group in listed if isinstance(listed[0], dict) else [{"params": listed}]:
            self.add_param_group(group)

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """An instance without parameters, whose `__init__` takes these options."""
        if options:
            check_keywords(cls, options)
        return super().__new__(cls)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "step" in vars(cls):
            cls.step = ending(vars(cls)["step"])  # type: ignore[method-assign]

    @property
    def state(self) -> defaultdict[Any, dict[str, Any]]:
        """The state of each parameter that made a step, by name. Whoever asks may put another tensor into it: compiled
        steps look then, and need not at each call."""
        session.states_shown_of(self)
        if "_ahead" in vars(self):
            self._ahead = {p: state for p, state in self._ahead.items() if state.get("step") == 0}
            for parameter in self.without_step():
                del self._states[parameter]
        return self._states

    @state.setter
    def state(self, state: defaultdict[Any, dict[str, Any]]) -> None:
        session.states_shown()
        vars(self)["state"] = state

    @property
    def _states(self) -> defaultdict[Any, dict[str, Any]]:
        """The state, for optimizers of Genesis' own, which keep its tensors: no compiled step has to look."""
        return vars(self)["state"]

    def make_ahead(self, parameter: Tensor, state: dict[str, Any], counted: bool) -> dict[str, Any]:
        """Note a state that is made ahead of a parameter's first step, which is then a step like all others.

        As in torch users see a state from the first step on: of one that counts steps, and while its count is 0,
        `state_dict` tells nothing, and whoever looks at `state` takes it out of there until the step (`stepping`). At
        the first look behind a step it is forgotten that it was made ahead: what a user counts back to 0 stays.

        Returns:
            What was made ahead for the parameter before.
        """
        if not counted or self.shows_first_state or not type(self).update.__module__.startswith("genesis.optim."):
            return {}
        ahead: dict[Any, dict[str, Any]] = vars(self).setdefault("_ahead", {})
        before = ahead.get(parameter, {})
        ahead[parameter] = state
        return before

    def without_step(self) -> set[Any]:
        """Parameters whose state was made ahead, and which have made no step that came to its end."""
        ahead: dict[Any, dict[str, Any]] = vars(self).get("_ahead", {})
        return {parameter for parameter, state in ahead.items()
                if state.get("step") == 0 and self._states.get(parameter) is state}

    def is_first_step(self, state: Mapping[str, Any]) -> bool:
        """Whether this is the state of a parameter that has made no step: what a user has set to 0 steps is not."""
        return state.get("step") == 0 and any(made is state for made in vars(self).get("_ahead", {}).values())

    # The part that a subclass defines

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """The state of a parameter that has not been stepped."""
        return {}

    def kind(self, parameter: Tensor) -> Hashable:
        """The properties, beside dtype and device, that parameters must share to be updated by one op."""
        return None

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Record the update of these parameters, which share dtype, device and kind."""
        raise NotImplementedError(f"{type(self).__name__} has no step(): override step, as for torch, or update")

    # The part that users call

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, and end the step: forward, backward and
        update run, asynchronously, as one plan.

        Args:
            closure: computes the loss anew; called first, with gradients on.

        Returns:
            What the closure returned.
        """
        if hooks.around(self):
            return hooks.around_step(self, stepped, () if closure is None else (closure,), {})
        return stepped(self, closure)

    def stepping_with(self, change: Change, undo: Callable[[], Any]) -> Temporary:
        """A context in which a step makes a change together with what it writes: both are made, or none.

        `undo` takes the change back where what was written is dropped, as the step's plan fails. A step that a subclass
        overrides makes its writes one by one, and not the change.
        """
        own = vars(self)
        return Temporary(lambda: Switched([(own.__setitem__, "_noted", (change, undo))], [(own.pop, "_noted", None)]))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, or overwrite them with 0."""
        clear_gradients(self._parameters(), set_to_none)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own: {"params": ..., option: value}.

        One that is listed twice, as two modules share it, is updated twice a step, as torch does with a warning.
        Pairs of a name and a parameter, as `named_parameters` gives them, leave the names in "param_names".
        """
        group = with_names_apart(param_group)
        if self.param_groups and ("param_names" in group) != ("param_names" in self.param_groups[0]):
            raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                             f"{'with' if 'param_names' in group else 'without'} names to the optimizer")
        known = set(map(id, self._parameters()))
        for parameter in group["params"]:
            check_parameter(self, parameter, known)
        for name, value in self.defaults.items():
            if value is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, value)
        distinct = distinct_parameters(group["params"])
        if len(distinct) < len(group["params"]):
            warnings.warn("optimizer contains a parameter group with duplicate parameters: a step updates these once "
                          "for each time that they are listed", stacklevel=3)
        self.param_groups.append(group)
        held: list[Any] = list(distinct)
        for parameter in distinct:
            if not parameter.requires_grad and not self.shows_first_state:
                continue  # a frozen parameter takes no memory until it has a gradient
            state = self.initial_state(parameter, group)
            if state:
                self._states[parameter] = state
                self.make_ahead(parameter, state, "step" in state)
                held += [x for x in state.values() if isinstance(x, Tensor)]
        engine.materialize(held)  # in memory now, so that the first step has the structure of all others

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number: {name: value}}, "param_groups": [{option: value, "params": [number]}]}.

        Parameters are numbered in the order of the groups, as in torch; what is no parameter's keeps its key.
        """
        return state_dict_of(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state, all of it or nothing: values are copied into the tensors that exist, options replaced.

        A parameter without state has made no step. Values are converted to the state's dtype and device, and are
        never broadcast. What the optimizer does not know is kept, as in torch.

        Raises:
            ValueError: other numbers of groups or of parameters in one; an option, a count or a tensor is missing, or
                has another shape than the optimizer's.
            TypeError: it, or a tensor's entry, is something else.
            KeyError: it has no "state" or no "param_groups".

        >>> import genesis
        >>> w = genesis.ones(2, requires_grad=True)
        >>> first, second = (genesis.optim.AdamW([w], lr=lr) for lr in (0.1, 0.2))
        >>> second.load_state_dict(first.state_dict())
        >>> second.param_groups[0]["lr"]
        0.1
        """
        take_over(self, state_dict)

    def local_state_dict(self) -> dict[str, Any]:
        """What this process has of the state, in the form of `state_dict()`: all of it, unless ranks share it out."""
        return self.state_dict()

    def state_layout(self, parameter: Tensor) -> Any:
        """Which part of which tensor a parameter's state is on this rank (`genesis.distributed.tensor.Layout`); None:
        the parameter is one of its own."""
        return getattr(parameter, "sharding", None)

    def own_part(self, parameter: Tensor, value: Tensor) -> Tensor:
        """What of a saved tensor belongs to this process' state of a parameter."""
        return value

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over attributes, of a copy or of a state that was loaded; for overriding."""
        self.__dict__.update(state)

    # Hooks

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; args begin with the optimizer, and it may return new
        (args, kwargs)."""
        return hooks.add(self, BEFORE, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return hooks.add(self, AFTER, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict`."""
        return hooks.add(self, "state_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after it; the state it returns, if any, is the one."""
        return hooks.add(self, "state_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before `load_state_dict`; the state it returns, if any, is loaded."""
        return hooks.add(self, "load_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after `load_state_dict`."""
        return hooks.add(self, "load_post", hook, prepend)

    def check_group(self, options: Group) -> None:
        """Refuse options of a loaded group that this optimizer cannot follow."""

    def complete(self, saved: Mapping[Any, Any], initial: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """A parameter's saved state with what torch's files leave out."""
        return saved

    def __repr__(self) -> str:
        lines = []
        for number, group in enumerate(self.param_groups):
            lines += ["", f"Parameter Group {number}"]
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return f"{type(self).__name__} ({chr(10).join(lines)}\n)"

    # For subclasses

    def record(self, op: Op, attrs: tuple[Any, ...], numbers: Callable[[], Sequence[float]],
               operands: Sequence[Tensor], written: Sequence[Tensor]) -> None:
        """Record `op` on the numbers and tensors; its i-th result becomes the content of written[i].

        `numbers()` advances the state that is kept in Python and gives the op's numbers. It is called
        once now, and once at each later call of a compiled function that this is part of. Where it has a method
        `ahead` (`session.ahead_of`) that is asked instead, and the state moves on together with the contents; its
        `undo` takes that back where the step's plan fails. Contents are written at the end of `step`, all at once.
        """
        writes = self.writes()
        given, counted = upcoming_numbers(numbers, writes.moved)
        node = emit(op, (*given, *read_all(operands)), attrs)
        writes.add(written, results_of(node), counted, node, numbers)

    def writes(self) -> Writes:
        """Where an update notes what it writes: all of a step is written at its end, at once.

        Raises:
            RuntimeError: no step runs.
        """
        if self._writes is None:
            raise failure(f"{type(self).__name__}.update", "it is called outside of step()", hint="call step()")
        running = session.active()
        if running is not None:
            running.note_options(self.param_groups)
            running.counting[id(self)] = self
        return self._writes

    def new_writes(self) -> Writes:
        """Where the updates of a step that begins note what they write."""
        return Writes(self._noted)

    def _parameters(self) -> Iterable[Tensor]:
        return chain.from_iterable(group["params"] for group in self.param_groups)


__getattr__ = suggesting(__name__)
