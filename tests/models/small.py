"""Small random models of transformers, and the same models here, read from the folders that those write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genesis.models import AutoModelForCausalLM

SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3, "bos_token_id": None,
    "eos_token_id": None}
"""Weights of deviation 0.3 make sharp predictions, so that two right models choose the same tokens."""

GPT2: dict[str, Any] = {
    "vocab_size": 97, "n_positions": 256, "n_embd": 48, "n_layer": 3, "n_head": 4, "initializer_range": 0.3,
    "bos_token_id": None, "eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def rope(kind: str, **numbers: Any) -> dict[str, Any]:
    """The field that scales rotary positions."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1000.0, **numbers}}


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3, heads that do not fill the model, biases": ("Qwen3", dict(SIZES, head_dim=20, attention_bias=True)),
    "qwen3, windows in later layers, tied": ("Qwen3", dict(
        SIZES, head_dim=12, use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True)),
    "qwen3 of experts, a plain layer": ("Qwen3Moe", dict(
        SIZES, head_dim=12, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True,
        mlp_only_layers=[1])),
    "qwen3 of experts, weights as they are, windows": ("Qwen3Moe", dict(
        SIZES, head_dim=12, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=16, decoder_sparse_step=2,
        use_sliding_window=True, sliding_window=5, max_window_layers=2)),
    "qwen2": ("Qwen2", SIZES),
    "llama, a bias in each layer": ("Llama", dict(SIZES, mlp_bias=True, attention_bias=True)),
    "llama, one head of keys": ("Llama", dict(SIZES, num_key_value_heads=1, tie_word_embeddings=True)),
    "llama 3's rope": ("Llama", dict(SIZES, **rope(
        "llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16))),
    "linear rope": ("Llama", dict(SIZES, **rope("linear", factor=4.0))),
    "dynamic rope": ("Llama", dict(SIZES, **rope("dynamic", factor=4.0), max_position_embeddings=8)),
    "yarn": ("Llama", dict(SIZES, **rope("yarn", factor=4.0, original_max_position_embeddings=16))),
    "longrope": ("Llama", dict(SIZES, **rope(
        "longrope", factor=4.0, long_factor=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], original_max_position_embeddings=8))),
    "mistral, a window": ("Mistral", dict(SIZES, sliding_window=4)),
    "gpt2, scores scaled by layer": ("GPT2", dict(
        GPT2, scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False)),
    "gpt2": ("GPT2", GPT2),
}


@dataclass(frozen=True)
class Pair:
    """A model of transformers and ours, with the same weights."""

    theirs: Any
    ours: Any
    folder: Path


def pair(name: str, folder: Path, dtype: torch.dtype = torch.float32, shard: str = "5GB") -> Pair:
    """The models of a row of `MODELS`; ours is read from the folder that theirs is written to."""
    transformers = __import__("transformers")
    family, fields = MODELS[name]
    torch.manual_seed(0)
    kind = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    theirs = getattr(transformers, kind)(getattr(transformers, f"{family}Config")(**fields)).to(dtype).eval()
    with torch.no_grad():  # which begin as 0 and 1, where one that is left out would not be missed
        for vector in (p for p in theirs.parameters() if p.ndim == 1):
            vector.add_(torch.randn_like(vector) * 0.2)
    theirs.save_pretrained(folder, max_shard_size=shard)
    return Pair(theirs, AutoModelForCausalLM.from_pretrained(folder), folder)


def tokens(rows: int = 2, length: int = 17) -> np.ndarray:
    """Random tokens."""
    return np.random.default_rng(0).integers(0, 97, (rows, length))
