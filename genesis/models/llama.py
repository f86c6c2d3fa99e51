"""Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024), and SmolLM, which is one by its configuration."""

from __future__ import annotations

from genesis.models.architecture import Architecture, Dropout, Rotary, activation_named
from genesis.models.causal_lm import CausalLM
from genesis.models.config import ROTARY_FIELDS, ModelConfig, rotary_of


class LlamaConfig(ModelConfig):
    """The fields of a Llama's `config.json`."""

    model_type = "llama"
    fields = {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "head_dim": None, "hidden_act": "silu",
        "max_position_embeddings": 2048, "initializer_range": 0.02, "rms_norm_eps": 1e-6, "attention_bias": False,
        "attention_dropout": 0.0, "mlp_bias": False, "tie_word_embeddings": False, "pretraining_tp": 1,
        "rope_interleaved": None, "is_llama_config": None, **ROTARY_FIELDS,
    }

    def architecture(self) -> Architecture:
        """Root mean square norms, rotary positions, gated feed-forward parts."""
        base, fraction, scaling = rotary_of(self)
        if self.rope_interleaved:
            raise ValueError("LlamaConfig: rope_interleaved=True is not supported, only pairs of halves")
        return Architecture(
            vocab_size=self.vocab_size, dim=self.hidden_size, layers=self.num_hidden_layers,
            heads=self.num_attention_heads, kv_heads=self.num_key_value_heads or self.num_attention_heads,
            head_dim=self.head_dim or self.hidden_size // self.num_attention_heads, hidden=self.intermediate_size,
            context=self.max_position_embeddings, norm_eps=self.rms_norm_eps,
            activation=activation_named(self.hidden_act), qkv_bias=self.attention_bias, out_bias=self.attention_bias,
            mlp_bias=self.mlp_bias, rotary=Rotary(base, fraction, scaling), tied=self.tie_word_embeddings,
            dropout=Dropout(attention=self.attention_dropout), initial_deviation=self.initializer_range)


class LlamaForCausalLM(CausalLM):
    """A Llama."""

    config_class = LlamaConfig
