"""The right class for a folder."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Any, Final

from genesis.ir.types import DType
from genesis.models.bert import BertModel
from genesis.models.causal_lm import CausalLM
from genesis.models.config import ModelConfig
from genesis.models.folder import CONFIG, find_folder, read_json
from genesis.models.gpt2 import GPT2LMHeadModel
from genesis.models.llama import LlamaForCausalLM
from genesis.models.mistral import MistralForCausalLM
from genesis.models.pretrained import PreTrainedModel
from genesis.models.qwen2 import Qwen2ForCausalLM
from genesis.models.qwen3 import Qwen3ForCausalLM, Qwen3MoeForCausalLM
from genesis.ops.creation import DeviceLike

CAUSAL: Final[dict[str, type[CausalLM]]] = {
    model.config_class.model_type: model
    for model in (Qwen3ForCausalLM, Qwen3MoeForCausalLM, Qwen2ForCausalLM, LlamaForCausalLM, MistralForCausalLM,
                  GPT2LMHeadModel)}
"""`model_type` in `config.json` → the class."""

ENCODERS: Final[dict[str, type[PreTrainedModel]]] = {"bert": BertModel}


def _chosen(table: dict[str, Any], folder: str | os.PathLike[str], revision: str, what: str) -> Any:
    path = find_folder(folder, revision)
    kind = read_json(path / CONFIG).get("model_type")
    if not isinstance(kind, str) or kind not in table:
        raise ValueError(f"{path} holds a model of type {kind!r}; the types of {what} here are "
                         f"{', '.join(sorted(table))}")
    return table[kind]


class AutoModelForCausalLM:
    """A language model of any family.

    `AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B", dtype=genesis.bfloat16, device="cuda")`
    """

    def __init__(self) -> None:
        raise TypeError("AutoModelForCausalLM is made by from_pretrained(folder) or from_config(config)")

    @staticmethod
    def from_pretrained(folder: str | os.PathLike[str], *, dtype: DType | str | None = None,
                        device: DeviceLike = None, revision: str = "main", **changes: Any) -> CausalLM:
        """The model in a folder or in the cache; see `PreTrainedModel.from_pretrained`."""
        model = _chosen(CAUSAL, folder, revision, "language models")
        return model.from_pretrained(folder, dtype=dtype, device=device, revision=revision, **changes)

    @staticmethod
    def from_config(config: ModelConfig) -> CausalLM:
        """A model with new weights.

        >>> from genesis.models import AutoModelForCausalLM, LlamaConfig
        >>> config = LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        ...                      num_attention_heads=2)
        >>> AutoModelForCausalLM.from_config(config).parameter_count()
        4208
        """
        return CAUSAL[config.model_type](config)


class AutoModel:
    """An encoder of any family."""

    def __init__(self) -> None:
        raise TypeError("AutoModel is made by from_pretrained(folder)")

    @staticmethod
    def from_pretrained(folder: str | os.PathLike[str], *, dtype: DType | str | None = None,
                        device: DeviceLike = None, revision: str = "main", **changes: Any) -> PreTrainedModel:
        """The model in a folder or in the cache; see `PreTrainedModel.from_pretrained`."""
        model = _chosen(ENCODERS, folder, revision, "encoders")
        return model.from_pretrained(folder, dtype=dtype, device=device, revision=revision, **changes)


def config_for(family: str, **fields: Any) -> ModelConfig:
    """The configuration of a new language model.

    Args:
        family: a `model_type`: "llama", "qwen3", "gpt2", …
        fields: of the family's `config.json`; the others have their defaults.

    Raises:
        ValueError: there is no such family, or a field is not one of its.

    >>> config_for("gpt2", n_layer=2).architecture().layers
    2
    """
    if family not in CAUSAL:
        near = get_close_matches(family, CAUSAL, 1)
        raise ValueError(f"there is no family {family!r} of language models; "
                         + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(CAUSAL))}"))
    return CAUSAL[family].config_class(**fields)


def config_of(folder: str | os.PathLike[str], revision: str = "main") -> ModelConfig:
    """The configuration of the model in a folder."""
    model = _chosen({**CAUSAL, **ENCODERS}, folder, revision, "models")
    return model.config_class.from_dict(read_json(find_folder(folder, revision) / CONFIG))
