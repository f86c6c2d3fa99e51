"""GPT-2 (Radford et al. 2019) in Hugging Face's form. `gpt.py` is the same model, short, to read and to train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import genesis
from genesis import Tensor
from genesis.models.architecture import Architecture, Dropout, activation_named
from genesis.models.causal_lm import CausalLM
from genesis.models.config import ModelConfig
from genesis.models.conversion import Conversion, packed, renamed, transposed

if TYPE_CHECKING:
    from genesis.models.gpt import GPT


class GPT2Config(ModelConfig):
    """The fields of a GPT-2's `config.json`."""

    model_type = "gpt2"
    depth = "n_layer"
    other_names = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
                   "max_position_embeddings": "n_positions"}
    fields = {
        "vocab_size": 50257, "n_positions": 1024, "n_ctx": None, "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_inner": None, "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False, "tie_word_embeddings": True,
        "summary_type": "cls_index", "summary_use_proj": True, "summary_activation": None,
        "summary_proj_to_labels": True, "summary_first_dropout": 0.1,
    }

    def architecture(self) -> Architecture:
        """Layer norms, a table of positions, biases everywhere."""
        if self.n_embd % self.n_head:
            raise ValueError(f"GPT2Config: n_embd={self.n_embd} is not a multiple of n_head={self.n_head}")
        size = self.n_embd // self.n_head
        scale = size ** -0.5 if self.scale_attn_weights else 1.0
        return Architecture(
            vocab_size=self.vocab_size, dim=self.n_embd, layers=self.n_layer, heads=self.n_head, kv_heads=self.n_head,
            head_dim=size, hidden=self.n_inner or 4 * self.n_embd, context=self.n_positions, norm="layer",
            norm_eps=self.layer_norm_epsilon, activation=activation_named(self.activation_function), gated=False,
            qkv_bias=True, out_bias=True, mlp_bias=True, position_table=self.n_positions, tied=self.tie_word_embeddings,
            scales=tuple(scale / (i + 1 if self.scale_attn_by_inverse_layer_idx else 1) for i in range(self.n_layer)),
            dropout=Dropout(self.embd_pdrop, self.attn_pdrop, self.resid_pdrop),
            initial_deviation=self.initializer_range)


class GPT2LMHeadModel(CausalLM):
    """A GPT-2. A folder has its matrices transposed, and those of queries, keys and values in one."""

    config_class = GPT2Config
    prefix = "transformer."

    @classmethod
    def from_gpt(cls, model: GPT) -> Self:
        """The same model as a `GPT`, with copies of its weights on its device: it can be saved as a folder.

        >>> from genesis.models import GPT, GPTConfig
        >>> small = GPT(GPTConfig(vocab_size=9, context=8, layers=1, heads=2, dim=4))
        >>> ids = genesis.tensor([[1, 2, 3]])
        >>> bool((GPT2LMHeadModel.from_gpt(small)(ids).logits - small(ids)[0]).abs().max() < 1e-6)
        True
        """
        sizes, p = model.config, model.config.dropout
        made = cls(GPT2Config(vocab_size=sizes.vocab_size, n_positions=sizes.context, n_embd=sizes.dim,
                              n_layer=sizes.layers, n_head=sizes.heads, resid_pdrop=p, embd_pdrop=p, attn_pdrop=0.0,
                              bos_token_id=None, eos_token_id=None))
        made = made.to(device=model.position.device, dtype=model.position.dtype)
        with genesis.no_grad():
            given = _weights_of_gpt(model)
            for name, parameter in made.named_parameters():  # what a model without biases lacks is 0
                parameter.copy_(given[name]) if name in given else parameter.zero_()
        return made.train(model.training)

    def conversions(self) -> Sequence[Conversion]:
        """Other names for all, other forms for the matrices."""
        found = [renamed("transformer.wte.weight", "model.embed_tokens.weight"),
                 renamed("transformer.wpe.weight", "model.embed_positions.weight"),
                 renamed("transformer.ln_f.weight", "model.norm.weight"),
                 renamed("transformer.ln_f.bias", "model.norm.bias")]
        for i in range(self.spec.layers):
            there, here = f"transformer.h.{i}.", f"model.layers.{i}."
            heads = [f"{here}self_attn.{part}_proj." for part in "qkv"]
            found += [transposed(there + "attn.c_attn.weight", *(head + "weight" for head in heads)),
                      packed(there + "attn.c_attn.bias", *(head + "bias" for head in heads))]
            for name, own in (("ln_1", "input_layernorm"), ("ln_2", "post_attention_layernorm")):
                found += [renamed(f"{there}{name}.{kind}", f"{here}{own}.{kind}") for kind in ("weight", "bias")]
            for name, own in (("attn.c_proj", "self_attn.o_proj"), ("mlp.c_fc", "mlp.up_proj"),
                              ("mlp.c_proj", "mlp.down_proj")):
                found += [transposed(f"{there}{name}.weight", f"{here}{own}.weight"),
                          renamed(f"{there}{name}.bias", f"{here}{own}.bias")]
        return found


def _weights_of_gpt(model: GPT) -> dict[str, Tensor]:
    """The weights of a `GPT` by this model's names."""
    held = dict(model.named_parameters())
    found = {"model.embed_tokens.weight": held["token.weight"], "model.embed_positions.weight": held["position"]}
    places = {"": ("norm", "model.norm")}
    for i in range(model.config.layers):
        for theirs, ours in (("norm1", "input_layernorm"), ("attention.out", "self_attn.o_proj"),
                             ("norm2", "post_attention_layernorm"), ("mlp.up", "mlp.up_proj"),
                             ("mlp.down", "mlp.down_proj")):
            places[f"{i}.{theirs}"] = f"blocks.{i}.{theirs}", f"model.layers.{i}.{ours}"
        for kind in ("weight", "bias"):
            if (packed_heads := held.get(f"blocks.{i}.attention.qkv.{kind}")) is not None:
                for part, head in zip("qkv", packed_heads.chunk(3), strict=True):
                    found[f"model.layers.{i}.self_attn.{part}_proj.{kind}"] = head
    for theirs, ours in places.values():
        found.update({f"{ours}.{kind}": held[f"{theirs}.{kind}"] for kind in ("weight", "bias")
                      if f"{theirs}.{kind}" in held})
    return found
