"""The encoder and decoder of the Transformer (Vaswani et al. 2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.modules.container import ModuleList
from genesis.nn.modules.dropout import Dropout
from genesis.nn.modules.linear import Linear
from genesis.nn.modules.module import Module
from genesis.nn.modules.multihead import MultiheadAttention
from genesis.nn.modules.normalization import LayerNorm
from genesis.ops.creation import full
from genesis.ops.triangles import triu

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
           "TransformerEncoderLayer"]

Activation = Callable[[Tensor], Tensor]


def _get_clones(module: Module, N: int) -> ModuleList:
    """N copies of a module: torch's name, which transformers of other kinds import."""
    return ModuleList(copy.deepcopy(module) for _ in range(N))


def _get_activation_fn(activation: str) -> Activation:
    """The function of a name: torch's name of it."""
    return _activation(activation)


def _activation(given: str | Activation) -> Activation:
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise failure("Transformer", f"activation should be relu/gelu, not {given}", error=RuntimeError)
    return F.relu if given == "relu" else F.gelu


class _Layer(Module):
    """The base of both kinds of layers: attention within the sequence, a network at each place, norms, dropout."""

    def _set_up(self, d_model: int, nhead: int, dim_feedforward: int, dropout: float, activation: str | Activation,
                eps: float, batch_first: bool, norm_first: bool, bias: bool, crossed: bool, device: Any,
                dtype: DType | None) -> None:
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        heads: dict[str, Any] = {"dropout": dropout, "bias": bias, "batch_first": batch_first, **place}
        self.self_attn = MultiheadAttention(d_model, nhead, **heads)
        if crossed:
            self.multihead_attn = MultiheadAttention(d_model, nhead, **heads)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        numbers = range(1, 4 if crossed else 3)
        for number in numbers:
            setattr(self, f"norm{number}", LayerNorm(d_model, eps, bias=bias, **place))
        for number in numbers:
            setattr(self, f"dropout{number}", Dropout(dropout))
        self.activation = _activation(activation)

    def _step(self, x: Tensor, norm: Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        """x plus what a part of the layer makes of it, normalized before or after."""
        found: Tensor = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return found

    # The parts have torch's names: layers of a user's own override them.

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                  is_causal: bool = False) -> Tensor:
        """What the attention within the sequence adds."""
        found: Tensor = self.dropout1(self.self_attn(x, x, x, key_padding_mask, False, attn_mask,
                                                     is_causal=is_causal)[0])
        return found


class TransformerEncoderLayer(_Layer):
    """Attention within a sequence and a network at each place.

    Args:
        d_model: size of a place's vector.
        nhead: heads of the attention.
        dim_feedforward: size of the network's hidden layer.
        dropout: probability, in training.
        activation: of the network: "relu", "gelu" or a function.
        layer_norm_eps: of the norms.
        batch_first: tensors are (batch, length, size), not (length, batch, size).
        norm_first: normalize before attention and network, not after.
        bias: False leaves all biases out.
        device, dtype: of the parameters.

    >>> import genesis
    >>> TransformerEncoderLayer(8, 2, 16, batch_first=True)(genesis.ones(2, 5, 8)).shape
    genesis.Size([2, 5, 8])
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: DType | None = None):
        super().__init__()
        self._set_up(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
                     bias, False, device, dtype)

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        """The input's shape. Masks are true, or -inf, where a key is not to be seen."""
        x = self._step(src, self.norm1, lambda x: self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
        return self._step(x, self.norm2, self._ff_block)

    def _ff_block(self, x: Tensor) -> Tensor:
        """What the network at each place adds."""
        found: Tensor = self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return found


class TransformerDecoderLayer(_Layer):
    """Attention within a sequence, then to another one, and a network at each place.

    Arguments as of `TransformerEncoderLayer`.
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: str | Activation = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: DType | None = None):
        super().__init__()
        self._set_up(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
                     bias, True, device, dtype)

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
        """The shape of `tgt`. Masks are true, or -inf, where a key is not to be seen."""
        x = self._step(tgt, self.norm1, lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self._step(x, self.norm2, lambda x: self._mha_block(x, memory, memory_mask, memory_key_padding_mask,
                                                                memory_is_causal))
        return self._step(x, self.norm3, self._ff_block)

    def _mha_block(self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                   is_causal: bool = False) -> Tensor:
        """What the attention to the other sequence adds."""
        found: Tensor = self.dropout2(self.multihead_attn(x, mem, mem, key_padding_mask, False, attn_mask,
                                                          is_causal=is_causal)[0])
        return found

    def _ff_block(self, x: Tensor) -> Tensor:
        """What the network at each place adds."""
        found: Tensor = self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))
        return found


class TransformerEncoder(Module):
    """Copies of a layer, one after another.

    Args:
        encoder_layer: what is copied.
        num_layers: how many.
        norm: a last normalization, or None.
        enable_nested_tensor, mask_check: not used.
    """

    norm: Module | None

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True):
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        """The input's shape."""
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Copies of a layer, one after another; arguments as of `TransformerEncoder`."""

    norm: Module | None

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        """The shape of `tgt`."""
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                        bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder, and a decoder that looks at what it made (Vaswani et al. 2017).

    Args:
        num_encoder_layers, num_decoder_layers: how many layers of each.
        custom_encoder, custom_decoder: taken instead.
        the others: as of `TransformerEncoderLayer`.
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Activation = F.relu,
                 custom_encoder: Any = None, custom_decoder: Any = None, layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: DType | None = None):
        super().__init__()
        how: tuple[Any, ...] = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                                norm_first, bias, device, dtype)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.encoder = custom_encoder if custom_encoder is not None else TransformerEncoder(
            TransformerEncoderLayer(*how), num_encoder_layers, norm())
        self.decoder = custom_decoder if custom_decoder is not None else TransformerDecoder(
            TransformerDecoderLayer(*how), num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        """Draw new initial values of all matrices."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        """Two sequences → the shape of `tgt`."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        found: Tensor = self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                                     tgt_is_causal, memory_is_causal)
        return found

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: DType | None = None) -> Tensor:
        """(sz, sz): 0 up to the diagonal, -inf beyond it."""
        return triu(full((sz, sz), float("-inf"), device=device, dtype=dtype), 1)
