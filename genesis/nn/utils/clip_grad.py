"""The clipping of gradients, by the name of torch's file."""

from genesis.nn.utils.parameters import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

clip_grad_norm = clip_grad_norm_

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]
