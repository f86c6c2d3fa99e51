"""Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024), and SmolLM, which is one by its configuration."""

from __future__ import annotations

from dataclasses import replace

from genesis.models.architecture import Architecture, Dropout, Rotary, activation_named
from genesis.models.causal_lm import CausalLM
from genesis.models.config import ROTARY_FIELDS, ModelConfig, padding_of, rotary_of


def parts_of(config: ModelConfig) -> Architecture:
    """What a Llama and the models after it have: root mean square norms, rotary positions, gated feed-forward parts."""
    base, scaling = rotary_of(config)
    return Architecture(
        vocab_size=config.vocab_size, dim=config.hidden_size, layers=config.num_hidden_layers,
        heads=config.num_attention_heads, kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads, hidden=config.intermediate_size,
        context=config.max_position_embeddings, norm_eps=config.rms_norm_eps,
        activation=activation_named(config.hidden_act), rotary=Rotary(base, scaling),
        tied=config.tie_word_embeddings, padding=padding_of(config),
        dropout=Dropout(attention=config.attention_dropout), initial_deviation=config.initializer_range)


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
        """`parts_of`, with biases where the fields ask for some."""
        if self.rope_interleaved:
            raise ValueError("LlamaConfig: rope_interleaved=True is not supported, only pairs of halves")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"LlamaConfig: hidden_size={self.hidden_size} is no multiple of num_attention_heads="
                             f"{self.num_attention_heads}, and transformers reads no such Llama")
        return replace(parts_of(self), qkv_bias=self.attention_bias, out_bias=self.attention_bias,
                       mlp_bias=self.mlp_bias)


class LlamaForCausalLM(CausalLM):
    """A Llama."""

    config_class = LlamaConfig
