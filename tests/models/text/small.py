"""A folder with a small model, a tokenizer of bytes and a chat template."""

from __future__ import annotations

import json
from pathlib import Path

import genesis
from genesis.models import LlamaConfig, LlamaForCausalLM

TEMPLATE = ("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")


def write_folder(folder: Path, template: str | None = TEMPLATE) -> Path:
    """Make the folder."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokens.pre_tokenizer, tokens.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokens.add_special_tokens([AddedToken("<|end|>", special=True)])
    folder.mkdir(parents=True, exist_ok=True)
    tokens.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", **({"chat_template": template} if template else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    genesis.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=tokens.get_vocab_size(), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.3))
    model.save_pretrained(folder)
    return folder
