"""Mistral 7B (Jiang et al. 2023): a Llama with sliding windows."""

from __future__ import annotations

from dataclasses import replace

from genesis.models.architecture import Architecture
from genesis.models.causal_lm import CausalLM
from genesis.models.config import ROTARY_FIELDS, ModelConfig, windows_of
from genesis.models.llama import parts_of


class MistralConfig(ModelConfig):
    """The fields of a Mistral's `config.json`."""

    model_type = "mistral"
    fields = {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": None, "hidden_act": "silu",
        "max_position_embeddings": 131072, "initializer_range": 0.02, "rms_norm_eps": 1e-6, "attention_dropout": 0.0,
        "sliding_window": 4096, "layer_types": None, "tie_word_embeddings": False, **ROTARY_FIELDS,
    }

    def architecture(self) -> Architecture:
        """Llama's, with a window of keys."""
        return replace(parts_of(self), windows=windows_of(self, self.num_hidden_layers))


class MistralForCausalLM(CausalLM):
    """A Mistral."""

    config_class = MistralConfig
