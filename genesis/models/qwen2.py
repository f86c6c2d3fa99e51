"""Qwen2 and Qwen2.5 (Yang et al. 2024): a Llama with biases of queries, keys and values."""

from __future__ import annotations

from dataclasses import replace

from genesis.models.architecture import Architecture
from genesis.models.causal_lm import CausalLM
from genesis.models.config import ROTARY_FIELDS, ModelConfig, windows_of
from genesis.models.llama import parts_of


class Qwen2Config(ModelConfig):
    """The fields of a Qwen2's `config.json`."""

    model_type = "qwen2"
    fields = {
        "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": None, "hidden_act": "silu",
        "max_position_embeddings": 32768, "initializer_range": 0.02, "rms_norm_eps": 1e-6, "attention_dropout": 0.0,
        "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28, "layer_types": None,
        "tie_word_embeddings": False, "use_mrope": None, **ROTARY_FIELDS,
    }

    def architecture(self) -> Architecture:
        """Llama's, with biases, and a window in the later layers where that is switched on."""
        if self.use_mrope:
            raise ValueError("Qwen2Config: use_mrope=True is not supported: the model reads images")
        return replace(parts_of(self), qkv_bias=True, windows=windows_of(self, self.num_hidden_layers))


class Qwen2ForCausalLM(CausalLM):
    """A Qwen2 or Qwen2.5."""

    config_class = Qwen2Config
