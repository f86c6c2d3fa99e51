"""Functions of neural networks, with torch's names and arguments."""

from genesis.nn.functional.activations import gelu, log_softmax, logsigmoid, relu, sigmoid, silu, softmax, tanh
from genesis.nn.functional.attention import scaled_dot_product_attention
from genesis.nn.functional.classification import cross_entropy, nll_loss
from genesis.nn.functional.dense import linear
from genesis.nn.functional.lookup import embedding, one_hot
from genesis.nn.functional.losses import binary_cross_entropy_with_logits, l1_loss, mse_loss
from genesis.nn.functional.noise import dropout
from genesis.nn.functional.norms import layer_norm, rms_norm
from genesis.nn.functional.padding import pad

__all__ = ["binary_cross_entropy_with_logits", "cross_entropy", "dropout", "embedding", "gelu", "l1_loss", "layer_norm",
           "linear", "log_softmax", "logsigmoid", "mse_loss", "nll_loss", "one_hot", "pad", "relu", "rms_norm",
           "scaled_dot_product_attention", "sigmoid", "silu", "softmax", "tanh"]
