"""BERT (Devlin et al. 2019): an encoder, whose tokens see the whole text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from genesis import Tensor, nn
from genesis.models.architecture import Architecture, Dropout, activation_named
from genesis.models.config import ModelConfig, padding_of
from genesis.models.conversion import Conversion, renamed, without_prefix
from genesis.models.pretrained import PreTrainedModel
from genesis.models.transformer import Transformer, draw_weights

if TYPE_CHECKING:
    import numpy as np


class BertConfig(ModelConfig):
    """The fields of a BERT's `config.json`."""

    model_type = "bert"
    fields = {
        "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
        "initializer_range": 0.02, "layer_norm_eps": 1e-12, "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    }

    def architecture(self) -> Architecture:
        """Norms behind each sum, tables of positions and segments, biases everywhere."""
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"BertConfig: hidden_size={self.hidden_size} is not a multiple of "
                             f"num_attention_heads={self.num_attention_heads}")
        if self.position_embedding_type != "absolute":
            raise ValueError(f"BertConfig: position_embedding_type={self.position_embedding_type!r} is not supported, "
                             "only 'absolute'")
        return Architecture(
            vocab_size=self.vocab_size, dim=self.hidden_size, layers=self.num_hidden_layers,
            heads=self.num_attention_heads, kv_heads=self.num_attention_heads,
            head_dim=self.hidden_size // self.num_attention_heads, hidden=self.intermediate_size,
            context=self.max_position_embeddings, causal=False, norm="layer", norm_eps=self.layer_norm_eps,
            norm_first=False, activation=activation_named(self.hidden_act), gated=False, qkv_bias=True, out_bias=True,
            mlp_bias=True, position_table=self.max_position_embeddings, segments=self.type_vocab_size,
            padding=padding_of(self, default=0),
            dropout=Dropout(self.hidden_dropout_prob, self.attention_probs_dropout_prob, self.hidden_dropout_prob),
            initial_deviation=self.initializer_range)


class EncoderOutput(NamedTuple):
    """Attributes:
        last_hidden_state: (B, T, dim).
        pooler_output: (B, dim), of the first token, through a layer of its own; None where the folder has none.
    """

    last_hidden_state: Tensor
    pooler_output: Tensor | None


class BertModel(PreTrainedModel):
    """A BERT without a head."""

    config_class = BertConfig

    def __init__(self, config: ModelConfig):
        super().__init__(config)
        self.encoder = Transformer(self.spec)
        self.pooler: nn.Linear | None = nn.Linear(self.spec.dim, self.spec.dim)
        draw_weights(self, self.spec.initial_deviation)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None,
                position_ids: Tensor | None = None) -> EncoderOutput:
        """Vectors of the tokens, and one of the text; see `Transformer.forward` for the arguments."""
        x = self.encoder(input_ids, attention_mask, position_ids, token_type_ids=token_type_ids)
        return EncoderOutput(x, None if self.pooler is None else self.pooler(x[:, 0]).tanh())

    def stored_here(self, stored: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """A folder of a model with a head has names with a prefix; old ones call a norm's weights gamma and beta."""
        own = without_prefix(stored, "bert.")
        return {_old_end.sub(lambda end: _OLD_ENDS[end[0]], name): array for name, array in own.items()}

    def leave_out(self, stored: Mapping[str, np.ndarray]) -> None:
        """Models that predict each token are stored without a pooler."""
        if "pooler.dense.weight" not in stored:
            self.pooler = None

    def conversions(self) -> Sequence[Conversion]:
        """Other names for all."""
        pairs = {"embeddings.word_embeddings": "encoder.embed_tokens",
                 "embeddings.position_embeddings": "encoder.embed_positions",
                 "embeddings.token_type_embeddings": "encoder.embed_segments",
                 "embeddings.LayerNorm": "encoder.norm", "pooler.dense": "pooler"}
        for i in range(self.spec.layers):
            there, here = f"encoder.layer.{i}.", f"encoder.layers.{i}."
            pairs |= {there + name: here + own for name, own in _LAYER.items()}
        return [renamed(f"{there}.{kind}", f"{here}.{kind}")
                for there, here in pairs.items() for kind in ("weight", "bias")]


_OLD_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_old_end = re.compile("LayerNorm.(gamma|beta)$")

_LAYER = {
    "attention.self.query": "self_attn.q_proj", "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj", "attention.output.dense": "self_attn.o_proj",
    "attention.output.LayerNorm": "input_layernorm", "intermediate.dense": "mlp.up_proj",
    "output.dense": "mlp.down_proj", "output.LayerNorm": "post_attention_layernorm",
}
"""Parts of a layer in a folder → in the model."""
