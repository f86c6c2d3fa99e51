"""`genesis.autograd`: gradients, functions with a backward of their own, hooks, and checks.

In: tensors that gradients are asked for. Out: `grad` nodes, one for each phase between boundaries
(`backward_engine.py`), and tensors that show their results; the pass `autodiff` writes the derivatives out.
"""

from typing import TYPE_CHECKING

from genesis.autograd import graph
from genesis.autograd.gradients import backward_of as backward
from genesis.autograd.gradients import grad, value_and_grad
from genesis.frontend import grad_mode
from genesis.frontend.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from genesis.frontend.later import names_later

if TYPE_CHECKING:  # which few programs need
    from genesis.autograd import anomaly, function, functional, numerical
    from genesis.autograd.anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
    from genesis.autograd.function import Function, FunctionCtx, once_differentiable
    from genesis.autograd.legacy import Variable
    from genesis.autograd.numerical import GradcheckError, gradcheck, gradgradcheck

__all__ = [
    "Function", "FunctionCtx", "GradcheckError", "Variable",
    "backward", "detect_anomaly", "enable_grad", "functional", "grad",
    "grad_mode", "gradcheck", "gradgradcheck", "graph", "inference_mode", "is_anomaly_enabled", "no_grad",
    "once_differentiable", "set_detect_anomaly", "set_grad_enabled", "value_and_grad",
]

__getattr__, __dir__ = names_later(__name__)
