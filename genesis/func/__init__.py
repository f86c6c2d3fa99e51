"""`genesis.func`: functions of functions, by torch.func's names: gradients, Jacobians, and a function over a batch.

In: functions of tensors. Out: functions that compute their gradients, Jacobians, or results of a batch.
"""

from genesis.func.derivatives import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)
from genesis.func.modules import functional_call, stack_module_state
from genesis.func.vectorize import vmap
from genesis.ir.suggest import suggesting

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "linearize",
           "stack_module_state", "value_and_grad", "vjp", "vmap"]

__getattr__ = suggesting(__name__)
