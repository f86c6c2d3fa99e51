"""Configurations of models, with the fields of Hugging Face's `config.json`.

Each family lists the fields that it knows, with their defaults. A field that is not among them may change what the
model computes, so it is refused, except for those that are known to change nothing (`NEUTRAL`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, ClassVar, Final

from genesis.models.architecture import Architecture
from genesis.nn import RotaryScaling

NEUTRAL: Final = frozenset([
    "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "_num_labels", "add_cross_attention",
    "architectures", "attn_implementation", "auto_map", "bad_words_ids", "begin_suppress_tokens", "bos_token_id",
    "chunk_size_feed_forward", "classifier_dropout", "cross_attention_hidden_size", "decoder_start_token_id",
    "directionality", "diversity_penalty", "do_sample", "dtype", "early_stopping", "encoder_no_repeat_ngram_size",
    "eos_token_id", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
    "forced_eos_token_id", "gradient_checkpointing", "id2label", "is_decoder", "is_encoder_decoder",
    "keys_to_ignore_at_inference", "label2id", "length_penalty", "max_length", "max_sequence_length", "min_length",
    "model_type", "n_special", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences",
    "output_attentions", "output_hidden_states", "output_past", "output_scores",
    "pad_token_id", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type", "predict_special_tokens", "prefix", "problem_type", "pruned_heads", "quantization_config",
    "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate", "sep_token_id",
    "suppress_tokens", "task_specific_params", "temperature", "tf_legacy_loss", "tie_encoder_decoder",
    "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript", "transformers.js_config",
    "transformers_version", "typical_p", "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
])
"""Fields that say how a model is called, trained or generated from, not what it computes. (By `pad_token_id` goes which
vectors are learnt, see `padding_of`.)"""

TOKENS: Final = frozenset(["bos_token_id", "eos_token_id", "pad_token_id"])
"""Tokens that begin, end and fill up a text."""

FORBIDDEN: Final = {"add_cross_attention": False, "is_decoder": False, "is_encoder_decoder": False,
                    "chunk_size_feed_forward": 0, "pruned_heads": {}, "quantization_config": None}
"""Fields that change nothing while they have this value (or null)."""


NULLABLE: Final = frozenset(["head_dim", "num_key_value_heads", "pretraining_tp", "sliding_window"])
"""Fields with a default that may be null, which is another value."""

ZERO_IS_NONE: Final = frozenset(["max_window_layers", "num_experts", "pretraining_tp", "type_vocab_size"])
"""Counts that may be 0."""


def _is_number(value: Any) -> bool:
    """A number that float64 holds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


_KINDS: Final[Sequence[tuple[type, str, Callable[[Any], bool]]]] = (
    (bool, "switch (true or false)", lambda value: isinstance(value, bool)),
    (int, "count", lambda value: type(value) is int),
    (float, "number", _is_number),
    (str, "text", lambda value: isinstance(value, str)),
)
"""The kind of a field's default → what its values are called, and which are ones."""


class ModelConfig(Mapping[str, Any]):
    """The fields of a model, readable as attributes and as a mapping.

    Attributes:
        model_type: the family's name in `config.json`.
        depth: the field that says how many layers there are.
        fields: each field that the family knows, with its default.
        other_names: what other families call some of them → the family's own name; either is read.
        fixed: fields that folders of the family have, and their only value; transformers does not read them.

    Raises:
        ValueError: a field that the family does not know, or one whose value it has no model for.
    """

    model_type: ClassVar[str]
    depth: ClassVar[str] = "num_hidden_layers"
    fields: ClassVar[Mapping[str, Any]]
    other_names: ClassVar[Mapping[str, str]] = {}
    fixed: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, **given: Any):
        given = self.by_own_names(given)
        unknown = sorted(set(given) - set(self.fields) - set(self.fixed) - NEUTRAL)
        if unknown:
            near = get_close_matches(unknown[0], self.fields, 1)
            raise ValueError(
                f"{type(self).__name__} does not know the field{'s' * (len(unknown) > 1)} {', '.join(unknown)}, which "
                "may change what the model computes" + (f"; did you mean {near[0]}?" if near else
                                                    f". It knows {', '.join(sorted(self.fields))}"))
        for name, harmless in {**FORBIDDEN, **self.fixed}.items():
            if name not in self.fields and given.get(name) not in (None, harmless):
                raise ValueError(f"{type(self).__name__}: {name}={given[name]!r} is not supported, only {harmless!r}")
        self._values = {**self.fields, **given}
        for name, default in self.fields.items():
            self._check(name, default, self._values[name])

    @classmethod
    def by_own_names(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields, none by another family's name.

        Raises:
            ValueError: a field has two values, by either name.
        """
        found = {name: value for name, value in given.items() if name not in cls.other_names}
        for name in cls.other_names.keys() & given.keys():
            if found.setdefault(own := cls.other_names[name], given[name]) != given[name]:
                raise ValueError(f"{cls.__name__}: {name} and {own} are one field, and have two values")
        return found

    def _check(self, name: str, default: Any, value: Any) -> None:
        """Raise ValueError unless the value is of the kind of its default: a switch, a count, a number, a text."""
        if default is None or (value is None and name in NULLABLE):
            return
        for kind, said, good in _KINDS:
            if isinstance(default, kind):
                if not good(value) or (kind is int and value < (name not in ZERO_IS_NONE)):
                    raise ValueError(f"{type(self).__name__}: {name}={value!r} is no {said}")
                return

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ModelConfig:
        """The configuration that a `config.json` holds."""
        return cls(**fields)

    def architecture(self) -> Architecture:
        """The parts that the fields ask for."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The fields, as `config.json` has them; one that is None by default is left out where it is. Null for a token
        says that there is none, where transformers has a default."""
        return {"model_type": self.model_type, **{
            name: value for name, value in self._values.items()
            if value is not None or self.fields.get(name) is not None or name in TOKENS}}

    def replace(self, **changes: Any) -> ModelConfig:
        """A configuration with other values of some fields."""
        return type(self)(**{**self._values, **self.by_own_names(changes)})

    def __getattr__(self, name: str) -> Any:
        values, name = self.__dict__.get("_values", {}), self.other_names.get(name, name)
        if name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __getitem__(self, name: str) -> Any:
        return self._values[self.other_names.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({json.dumps(self._values, default=str)})"


ROTARY_FIELDS: Final[Mapping[str, Any]] = {
    "rope_theta": None, "rope_scaling": None, "rope_parameters": None, "partial_rotary_factor": None,
    "original_max_position_embeddings": None,
}
"""How transformers 4 (theta and scaling apart) and 5 (`rope_parameters`) write the rotary embedding."""

ROTARY_PARAMETERS: Final = frozenset([
    "attention_factor", "beta_fast", "beta_slow", "factor", "finetuned", "high_freq_factor", "long_factor",
    "low_freq_factor", "mscale", "mscale_all_dim", "original_max_position_embeddings", "partial_rotary_factor",
    "rope_theta", "rope_type", "short_factor", "truncate", "type",
])
"""Parameters of any rotary scaling; one that a kind does not ask for changes nothing, as in transformers."""


def rotary_of(config: ModelConfig, theta: float = 10000.0) -> tuple[float, RotaryScaling]:
    """The base and the scaling. Whole heads are turned: transformers has no family of these that turns a part."""
    found = config.rope_scaling or config.rope_parameters or {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{type(config).__name__}: the parameters of rotary positions are {found!r}, no object")
    given = dict(found)
    unknown = sorted(set(given) - ROTARY_PARAMETERS)
    if unknown:
        raise ValueError(f"{type(config).__name__}: rotary positions have a parameter that Genesis does not know: "
                         f"{', '.join(unknown)}. It knows {', '.join(sorted(ROTARY_PARAMETERS))}")
    kind = given.pop("rope_type", given.pop("type", "default"))
    given.pop("type", None)
    base, fraction = (next((x for x in (given.pop(name, None), config[name]) if x is not None), default)
                      for name, default in (("rope_theta", theta), ("partial_rotary_factor", 1)))
    if config.original_max_position_embeddings is not None:
        given["original_max_position_embeddings"] = config.original_max_position_embeddings
    if kind in ("yarn", "longrope", "llama3"):
        given.setdefault("original_max_position_embeddings", config.max_position_embeddings)
    if not _is_number(base) or base <= 0:
        raise ValueError(f"{type(config).__name__}: rope_theta={base!r} is out of range: it is more than 0")
    if fraction != 1:
        raise ValueError(f"{type(config).__name__}: partial_rotary_factor={fraction!r} is not supported, only 1")
    return float(base), RotaryScaling(kind, given)


def padding_of(config: ModelConfig, default: int | None = None) -> int | None:
    """The token whose vector is not learnt where it is read: transformers gives its table this row as padding.

    Raises:
        ValueError: it is no token.
    """
    token = config.get("pad_token_id", default)
    if token is not None and (type(token) is not int or not -config.vocab_size <= token < config.vocab_size):
        raise ValueError(f"{type(config).__name__}: pad_token_id={token!r} is none of {config.vocab_size} tokens")
    return token


def windows_of(config: ModelConfig, layers: int) -> tuple[int | None, ...]:
    """How many tokens each layer looks back, itself included; None for all."""
    window = config.sliding_window if config.get("use_sliding_window", True) else None
    kinds = config.layer_types
    if kinds is None:
        first = config.get("max_window_layers", 0)
        kinds = ["sliding_attention" if window is not None and i >= first else "full_attention" for i in range(layers)]
    if not isinstance(kinds, Sequence) or not all(isinstance(kind, str) for kind in kinds):
        raise ValueError(f"{type(config).__name__}: layer_types={kinds!r} is no list of names")
    unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unknown or len(kinds) != layers:
        raise ValueError(f"{type(config).__name__}: layer_types names {len(kinds)} layers of {layers}"
                         + (f", and an attention that there is not: {unknown[0]}" if unknown else ""))
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
