"""Utilities over parameters and modules: clipping, packed sequences, parametrizations, norms of weights, fusion.

In: parameters, modules, sequences. Out: the same ones changed in place, or new ones of the same values.
"""

from genesis.ir.suggest import suggesting
from genesis.nn.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from genesis.nn.utils.parameters import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)

clip_grad_norm = clip_grad_norm_

_LATER = {"rnn": "", "parametrize": "", "parametrizations": "", "stateless": "", "clip_grad": "",
          "weight_norm": "norms", "remove_weight_norm": "norms", "spectral_norm": "norms",
          "remove_spectral_norm": "norms",
          "skip_init": "skipping"}

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "fuse_conv_bn_eval",
           "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights", "get_total_norm",
           "parameters_to_vector", "vector_to_parameters", *_LATER]

_missing = suggesting(__name__)


def __getattr__(name: str) -> object:
    """What is written with modules, which are written with the functions above: imported when it is asked for."""
    from importlib import import_module
    if name not in _LATER:
        return _missing(name)
    found = import_module(f"{__name__}.{_LATER[name] or name}")
    globals()[name] = found if not _LATER[name] else getattr(found, name)
    return globals()[name]
