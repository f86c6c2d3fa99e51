"""Functions of neural networks, with torch's names and arguments."""

import sys

from genesis.frontend.patches import WatchedModule
from genesis.ir.suggest import suggesting
from genesis.nn.functional.attention import scaled_dot_product_attention
from genesis.nn.functional.bags import embedding_bag
from genesis.nn.functional.channel_norms import batch_norm, group_norm, instance_norm, local_response_norm
from genesis.nn.functional.classification import cross_entropy, nll_loss
from genesis.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from genesis.nn.functional.ctc import ctc_loss
from genesis.nn.functional.dense import bilinear, linear
from genesis.nn.functional.distances import (
    cosine_embedding_loss,
    cosine_similarity,
    normalize,
    pairwise_distance,
    pdist,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from genesis.nn.functional.grids import affine_grid, grid_sample
from genesis.nn.functional.images import (
    channel_shuffle,
    fold,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
    unfold,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from genesis.nn.functional.lookup import embedding, one_hot
from genesis.nn.functional.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
)
from genesis.nn.functional.margins import multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss
from genesis.nn.functional.multihead import multi_head_attention_forward
from genesis.nn.functional.noise import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from genesis.nn.functional.norms import layer_norm, rms_norm
from genesis.nn.functional.padding import pad
from genesis.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from genesis.nn.functional.softmax import gumbel_softmax, log_softmax, softmax, softmin
from genesis.ops.activation import (
    celu,
    celu_,
    elu,
    elu_,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    relu_,
    rrelu,
    rrelu_,
    selu,
    selu_,
    silu,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
    threshold_,
)
from genesis.ops.special import sigmoid
from genesis.ops.trigonometry import tanh

__all__ = ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
           "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
           "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "affine_grid", "alpha_dropout", "avg_pool1d",
           "avg_pool2d", "avg_pool3d", "batch_norm", "bilinear", "binary_cross_entropy",
           "binary_cross_entropy_with_logits", "celu", "celu_", "channel_shuffle", "conv1d", "conv2d", "conv3d",
           "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity",
           "cross_entropy", "ctc_loss", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "elu_", "embedding",
           "embedding_bag", "feature_alpha_dropout", "fold", "gaussian_nll_loss", "gelu", "glu", "grid_sample",
           "group_norm", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_",
           "hinge_embedding_loss", "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss", "layer_norm",
           "leaky_relu", "leaky_relu_", "linear", "local_response_norm", "log_softmax", "logsigmoid", "lp_pool1d",
           "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
           "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d",
           "max_unpool3d", "mish", "mse_loss", "multi_head_attention_forward", "multi_margin_loss",
           "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad",
           "pairwise_distance", "pdist", "pixel_shuffle", "pixel_unshuffle", "poisson_nll_loss", "prelu", "relu",
           "relu6", "relu_", "rms_norm", "rrelu", "rrelu_", "scaled_dot_product_attention", "selu", "selu_", "sigmoid",
           "silu", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign",
           "tanh", "tanhshrink", "threshold", "threshold_", "triplet_margin_loss", "triplet_margin_with_distance_loss",
           "unfold", "upsample", "upsample_bilinear", "upsample_nearest"]

sys.modules[__name__].__class__ = WatchedModule  # layers look functions up here: a compiled call knows of replaced ones
__getattr__ = suggesting(__name__)
del sys, suggesting, WatchedModule
