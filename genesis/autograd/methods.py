"""The methods of tensors that gradients bring: `backward`, hooks, `grad_fn`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.autograd.backward_engine import content
from genesis.autograd.gradients import backward
from genesis.autograd.graph import GradFn
from genesis.autograd.graph_release import computed_by
from genesis.autograd.hooks import register_hook, register_post_accumulate_grad_hook, retain_grad
from genesis.frontend.layouts import computed_as
from genesis.frontend.recording import FREED, TensorBase
from genesis.frontend.tensor import install
from genesis.frontend.views import Layout

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


@install
class AutogradMethods(TensorBase):
    """Gradients as methods."""

    __slots__ = ()

    @property
    def grad_fn(self: Any) -> Any:
        """The op that computed it, None for leaves."""
        if self.is_leaf:
            return None
        node = content(self)
        made_by = computed_by.get(self.storage) if self.leaf == FREED else None
        return GradFn(computed_as(node) if isinstance(self.part, Layout) else node, made_by)

    def backward(self: Any, gradient: Tensor | None = None, retain_graph: bool | None = None,
                 create_graph: bool = False, inputs: Any = None) -> None:
        """Accumulate d(self)/d(leaf) into `.grad` of every leaf that wants it.

        Args:
            gradient: weight of each element, of this tensor's shape; may be left out for one element.
            retain_graph: keep the graph for another backward.
            create_graph: make the gradients differentiable.
            inputs: accumulate into these tensors only.

        >>> import genesis
        >>> x = genesis.tensor([2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([4., 6.])
        """
        backward(self, gradient, retain_graph, create_graph, inputs)

    def register_hook(self: Any, hook: Any) -> Any:
        """Register a function that the gradient of this tensor goes through; it may return another gradient.

        Call the result's `remove()` to take the function away.

        >>> import genesis
        >>> x = genesis.tensor(2.0, requires_grad=True)
        >>> handle = x.register_hook(lambda g: g * 10)
        >>> (x * x).backward()
        >>> x.grad
        tensor(40.)
        """
        return register_hook(self, hook)

    def register_post_accumulate_grad_hook(self: Any, hook: Any) -> Any:
        """Call a function with this leaf tensor after its `.grad` was accumulated into."""
        return register_post_accumulate_grad_hook(self, hook)

    def retain_grad(self: Any) -> None:
        """Keep the gradient of this computed tensor in `.grad` too."""
        retain_grad(self)
