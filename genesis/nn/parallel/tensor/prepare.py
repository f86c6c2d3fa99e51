"""Styles of modules without weights of their own: what goes in and comes out is brought into another layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.tensor.placement import Placement
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.modules.module import Module
from genesis.nn.parallel.tensor.style import REPLICATE, ParallelStyle, become, entering, handed_on, leaving

Layouts = Placement | Sequence[Placement | None] | None


def _several(layouts: Layouts) -> tuple[Placement | None, ...]:
    return () if layouts is None else (layouts,) if isinstance(layouts, Placement) else tuple(layouts)


class PrepareModuleInput(ParallelStyle):
    """Brings a module's arguments into other layouts.

    Args:
        input_layouts: how the positional arguments lie; None for one that is left alone.
        desired_input_layouts: how the module wants them.
        input_kwarg_layouts, desired_input_kwarg_layouts: the same of arguments by name.
        use_local_output: the module gets plain tensors; False hands them on with their layouts.

    Raises:
        ValueError: not as many layouts as are desired.
    """

    def __init__(self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None,
                 input_kwarg_layouts: Mapping[str, Placement] | None = None,
                 desired_input_kwarg_layouts: Mapping[str, Placement] | None = None, use_local_output: bool = False):
        self.input_layouts, self.desired_input_layouts = _several(input_layouts), _several(desired_input_layouts)
        self.input_kwarg_layouts = dict(input_kwarg_layouts or {})
        self.desired_input_kwarg_layouts = dict(desired_input_kwarg_layouts or {})
        self.use_local_output = use_local_output
        if len(self.input_layouts) != len(self.desired_input_layouts):
            raise failure("PrepareModuleInput", "input_layouts and desired_input_layouts should have same length!",
                          error=ValueError)
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise failure("PrepareModuleInput", "input_kwarg_layouts and desired_input_kwarg_layouts should have the "
                          "same names!", error=ValueError)

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Prepare the arguments."""
        forward = type(module).forward

        def prepared(module: Any, *args: Any, **kwargs: Any) -> Any:
            if len(args) < len(self.input_layouts):
                raise failure("PrepareModuleInput", "module inputs and input_layouts should have same length!",
                              error=ValueError, hint=f"{type(module).__name__} got {len(args)} positional arguments, "
                              f"the plan has {len(self.input_layouts)} layouts")
            pairs = zip(self.input_layouts, self.desired_input_layouts, strict=True)
            taken = [self._prepared(x, mesh, *pair) for x, pair in zip(args, pairs, strict=False)]
            named = {name: self._prepared(x, mesh, self.input_kwarg_layouts.get(name),
                                          self.desired_input_kwarg_layouts.get(name)) for name, x in kwargs.items()}
            return forward(module, *taken, *args[len(taken):], **named)
        become(module, "Prepared", forward=prepared)

    def _prepared(self, x: Any, mesh: DeviceMesh, given: Placement | None, wanted: Placement | None) -> Any:
        if given is None or wanted is None or not isinstance(x, Tensor):
            return x
        found = entering(x, mesh, given, wanted)
        return found if self.use_local_output else handed_on(found, wanted)


class GatheredInput(ParallelStyle):
    """The first argument is whole, and all that the module does with it is done by parts: gradients of Colwise layers
    inside are added by one collective.

    Args:
        given: how the argument lies.
    """

    def __init__(self, given: Placement = REPLICATE):
        self.given = given

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Prepare the argument."""
        forward, given = type(module).forward, self.given

        def prepared(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Any:
            whole = entering(x, mesh, given, REPLICATE, partial=True)
            return forward(self, handed_on(whole, REPLICATE, pending=True), *args, **kwargs)
        become(module, "Gathered", forward=prepared)


class PrepareModuleOutput(ParallelStyle):
    """Brings what a module returns into other layouts.

    Args:
        output_layouts: how the results lie; None for one that is left alone.
        desired_output_layouts: how they are wanted.
        use_local_output: results are plain tensors; False hands them on with their layouts.

    Raises:
        ValueError: not as many layouts as are desired.
    """

    def __init__(self, *, output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True):
        self.output_layouts, self.desired_output_layouts = _several(output_layouts), _several(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise failure("PrepareModuleOutput", "output_layouts and desired_output_layouts should have same length!",
                          error=ValueError)

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Prepare the results."""
        forward = type(module).forward

        def prepared(module: Any, *args: Any, **kwargs: Any) -> Any:
            found = forward(module, *args, **kwargs)
            several = found if isinstance(found, tuple) else (found,)
            if len(several) != len(self.output_layouts):
                raise failure("PrepareModuleOutput", "module outputs and output_layouts should have same length!",
                              error=ValueError)
            results = tuple(y if given is None or wanted is None else
                            leaving(y, mesh, given, wanted, self.use_local_output)
                            for y, given, wanted in zip(several, self.output_layouts, self.desired_output_layouts,
                                                        strict=True))
            return results if isinstance(found, tuple) else results[0]
        become(module, "Prepared", forward=prepared)


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` of one module; `use_local_input` is the first one's
    `use_local_output`."""

    def __init__(self, *, input_layouts: Layouts = None, desired_input_layouts: Layouts = None,
                 input_kwarg_layouts: Mapping[str, Placement] | None = None,
                 desired_input_kwarg_layouts: Mapping[str, Placement] | None = None, use_local_input: bool = False,
                 output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True):
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts, desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input)
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output)

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Prepare both."""
        self.prepare_module_input.apply(module, mesh)
        self.prepare_module_output.apply(module, mesh)
