"""`genesis.func`: functions of functions, by torch.func's names: gradients, Jacobians, and a function over a batch."""

from genesis.func.derivatives import grad, grad_and_value, hessian, jacfwd, jacobian, jacrev, jvp, value_and_grad, vjp
from genesis.func.vectorize import vmap

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "value_and_grad", "vjp", "vmap"]
