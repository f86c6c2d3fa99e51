"""Folders that are not as they should be: each is refused with a sentence, and nothing outside is read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis.models import (
    AutoModelForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3MoeConfig,
)
from genesis.models import folder as folder_module
from genesis.models.folder import INDEX, WEIGHTS, StoredWeights, find_folder

CONFIG = LlamaConfig(vocab_size=20, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small Llama in three shards."""
    LlamaForCausalLM(CONFIG).save_pretrained(tmp_path / "model", max_shard_bytes=3000)
    return tmp_path / "model"


@pytest.mark.parametrize(("given", "found"), [
    ({"dtype": "bfloat16"}, genesis.bfloat16), ({"dtype": "torch.float16"}, genesis.float16),
    ({"torch_dtype": genesis.bfloat16}, genesis.bfloat16), ({"dtype": "auto"}, genesis.float32),
    ({"torch_dtype": "auto"}, genesis.float32)])
def test_the_dtype_of_the_weights_by_either_name(given: dict[str, Any], found: Any, folder: Path) -> None:
    assert AutoModelForCausalLM.from_pretrained(folder, **given).lm_head.weight.dtype is found


def stored_as(folder: Path, dtypes: dict[str, Any], **fields: Any) -> None:
    """Store the weights whose names have these parts in these dtypes, and set fields of the configuration."""
    stored = StoredWeights(folder)
    whole = {name: genesis.tensor(array) for name, array in stored.items()}
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    genesis.save({name: x.to(next((dtypes[part] for part in dtypes if part in name), x.dtype))
                  for name, x in whole.items()}, folder / WEIGHTS)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


@pytest.mark.parametrize(("fields", "found"), [
    ({"dtype": "bfloat16"}, genesis.bfloat16), ({"dtype": None, "torch_dtype": "float16"}, genesis.float16),
    ({"dtype": "torch.float32"}, genesis.float32), ({"dtype": None}, genesis.bfloat16),
    ({"dtype": "int8"}, genesis.bfloat16)], ids=str)
def test_weights_of_several_dtypes_become_one(fields: dict[str, Any], found: Any, folder: Path) -> None:
    """That which the configuration names, as in transformers, or else that of most: no layer takes two."""
    stored_as(folder, {"norm": genesis.float32, "embed": genesis.float32, "": genesis.bfloat16}, **fields)
    for given in ({}, {"dtype": "auto"}):
        model = AutoModelForCausalLM.from_pretrained(folder, **given)
        assert {weight.dtype for weight in model.parameters()} == {found}
        model(genesis.tensor([[1, 2, 3]])).logits.tolist()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float64")
    assert {weight.dtype for weight in model.parameters()} == {genesis.float64}


def test_weights_of_one_dtype_stay_as_they_are_stored(folder: Path) -> None:
    """Whatever the configuration says, and beside constants of another one."""
    stored_as(folder, {"": genesis.float16}, dtype="bfloat16")
    whole = genesis.load(folder / WEIGHTS)
    genesis.save({**whole, "model.layers.0.self_attn.rotary_emb.inv_freq": genesis.ones(4)}, folder / WEIGHTS)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert {weight.dtype for weight in model.parameters()} == {genesis.float16}


@pytest.mark.parametrize("dtype", ["bfloat17", "int64", 3])
def test_a_dtype_that_weights_do_not_have(dtype: Any, folder: Path) -> None:
    with pytest.raises(TypeError, match="dtype"):
        AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


@pytest.mark.parametrize(("given", "message"), [
    ({"dtpye": "bfloat16"}, "takes no dtpye; did you mean dtype"), ({"devise": "cpu"}, "did you mean device"),
    ({"device_map": "auto"}, "takes no device_map: device= puts all"),
    ({"trust_remote_code": True}, "nothing in a folder is ever executed")])
def test_arguments_that_there_are_not(given: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(TypeError, match=message):
        AutoModelForCausalLM.from_pretrained(folder, **given)


def test_weights_go_straight_from_the_file_to_the_gpu(folder: Path, host_driver: Any,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """No byte is copied on the host: the driver reads the pages that the file is mapped to."""
    mapped, given = [], []
    original, copy = folder_module.mapped, host_driver.copy_to_device

    def noted(path: Path) -> Any:
        found = original(path)
        mapped.extend(array for array, _ in found[0].values())
        return found

    def copied(address: int, host: int, nbytes: int, stream: Any) -> None:
        given.append((host, nbytes))
        copy(address, host, nbytes, stream)
    monkeypatch.setattr(folder_module, "mapped", noted)
    monkeypatch.setattr(host_driver, "copy_to_device", copied)
    model = AutoModelForCausalLM.from_pretrained(folder, device="cuda")
    pages = {(array.ctypes.data, array.nbytes) for array in mapped}
    assert pages <= set(given)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    for name, weight in plain.named_parameters():
        assert weight.tolist() == model.get_parameter(name).tolist(), name


@pytest.mark.parametrize("device", [None, "cpu", "cuda"])
def test_a_file_that_changes_afterwards_changes_no_weight(device: str | None, folder: Path, host_driver: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, device=device)
    before = {name: weight.tolist() for name, weight in model.named_parameters()}
    for path in folder.glob("*.safetensors"):
        with path.open("r+b") as file:
            file.write(b"\xff" * path.stat().st_size)
    assert {name: weight.tolist() for name, weight in model.named_parameters()} == before


def test_a_folder_on_no_device(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, device="meta")
    assert {weight.device.type for weight in model.parameters()} == {"meta"}


@pytest.mark.parametrize("sizes", [(3000, 10 ** 9), (10 ** 9, 3000), (2000, 3000), (3000, 2000)])
def test_weights_take_the_place_of_those_of_before(sizes: tuple[int, int], tmp_path: Path) -> None:
    """Other tools read all files of a folder."""
    for size in sizes:
        model = LlamaForCausalLM(CONFIG)
        model.save_pretrained(tmp_path, max_shard_bytes=size)
    places = set(json.loads((tmp_path / INDEX).read_text())["weight_map"].values()) if sizes[1] < 10 ** 9 else {WEIGHTS}
    assert {path.name for path in tmp_path.glob("*.safetensors")} == places
    assert (tmp_path / INDEX).exists() == (sizes[1] < 10 ** 9)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(bool((a == b).all()) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("before", [2000, 3000, 10 ** 9])
@pytest.mark.parametrize("after", [2000, 3000, 10 ** 9])
def test_a_kill_while_weights_are_written_leaves_no_mix(before: int, after: int, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """At each file: the folder has the old model, the new one, or none."""
    old, new = (LlamaForCausalLM(CONFIG) for _ in range(2))
    plain, number = os.replace, 0
    while True:
        shutil.rmtree(tmp_path / "model", ignore_errors=True)
        old.save_pretrained(tmp_path / "model", max_shard_bytes=before)
        left = iter(range(number))

        def replace(*paths: Any, left: Any = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            plain(*paths)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            try:
                new.save_pretrained(tmp_path / "model", max_shard_bytes=after)
                break
            except KeyboardInterrupt:
                pass
        try:
            found = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
        except FileNotFoundError:
            found = None
        assert found is None or any(
            all(bool((a == b).all()) for a, b in zip(found.parameters(), model.parameters(), strict=True))
            for model in (old, new))
        number += 1
    assert number > 1


def edit(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; None takes one away."""
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))


def test_it_is_read_as_it_was_written(folder: Path) -> None:
    first, again = (AutoModelForCausalLM.from_pretrained(folder) for _ in range(2))
    assert isinstance(first, LlamaForCausalLM) and not first.training
    for (name, a), (_, b) in zip(first.named_parameters(), again.named_parameters(), strict=True):
        assert bool((a == b).all()), name


def test_a_field_that_is_unknown(folder: Path) -> None:
    edit(folder / "config.json", hiden_size=3)
    with pytest.raises(ValueError, match=r"does not know the field hiden_size.*did you mean hidden_size\?"):
        AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize(("field", "value", "message"), [
    ("hidden_act", "telu", "there is no activation 'telu'"),
    ("rope_scaling", {"type": "spiral"}, "there is no rotary scaling 'spiral'"),
    ("rope_scaling", {"type": "linear"}, "'linear' needs factor"),
    ("add_cross_attention", True, "add_cross_attention=True is not supported"),
    ("quantization_config", {"bits": 4}, "quantized weights"),
    ("model_type", "mamba", "a model of type 'mamba'; the types of language models here are gpt2, llama"),
    ("hidden_size", 24, "is of shape"),
    ("num_hidden_layers", 2, "missing: model.layers.1"),
    ("attention_bias", True, "missing: .*q_proj.bias"),
    ("num_key_value_heads", 3, "2 heads of queries cannot share 3"),
    ("num_hidden_layers", 10**9, "asks for 1000000000 layers, where the files hold 12 tensors"),
    ("intermediate_size", 2**40, "asks for hidden = 1099511627776"),
    ("num_attention_heads", 0, "num_attention_heads=0 is no count"),
    ("hidden_size", "16", "hidden_size='16' is no count"),
    ("rms_norm_eps", "1e-6", "rms_norm_eps='1e-6' is no number"),
    ("rms_norm_eps", 10 ** 400, "rms_norm_eps=10+ is no number"),
    ("initializer_range", -0.5, "standard deviation of -0.5: it is 0 or more"),
    ("tie_word_embeddings", "no", "tie_word_embeddings='no' is no switch"),
    ("model_type", ["llama"], "a model of type .'llama'."),
    ("rope_theta", -1, "rope_theta=-1 is out of range"),
    ("rope_theta", 0, "rope_theta=0 is out of range"),
    ("partial_rotary_factor", 0.5, "partial_rotary_factor=0.5 is not supported"),
    ("rope_parameters", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 is not supported"),
    ("hidden_size", 15, "hidden_size=15 is no multiple of num_attention_heads=2"),
    ("rope_scaling", [1], "are .1., no object"),
    ("rope_scaling", {"type": "linear", "factor": 0}, "factor=0 is no positive number"),
    ("rope_scaling", {"type": "linear", "factor": 2.0, "spiral": 1}, "does not know: spiral"),
    ("rope_parameters", {"full_attention": {"rope_type": "default"}}, "does not know: full_attention"),
    ("rope_scaling", {"type": "longrope", "long_factor": [1.0] * 4, "short_factor": [1.0] * 4, "factor": 2.0,
                      "original_max_position_embeddings": 1}, "there are no angles"),
])
def test_fields_that_no_model_has(folder: Path, field: str, value: Any, message: str) -> None:
    edit(folder / "config.json", **{field: value})
    with pytest.raises(ValueError, match=message):
        AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize(("config", "fields"), [
    (Qwen3MoeConfig, {"use_qk_norm": True, "shared_expert_intermediate_size": 0, "qkv_bias": False}),
    (LlamaConfig, {"unsloth_fixed": True, "unsloth_version": "2026.3"})])
def test_fields_of_folders_on_the_hub_that_transformers_does_not_read(config: Any, fields: dict[str, Any]) -> None:
    assert config(**fields).architecture() == config().architecture()


@pytest.mark.parametrize("fields", [
    {"use_qk_norm": False}, {"shared_expert_intermediate_size": 64}, {"qkv_bias": True}])
def test_such_fields_with_another_value(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not supported, only"):
        Qwen3MoeConfig(**fields)
    with pytest.raises(ValueError, match="does not know the field"):
        LlamaConfig(**fields)


@pytest.mark.parametrize("field", ["quantization_config", "_attn_implementation", "attn_implementation"])
def test_fields_of_how_a_model_is_run(folder: Path, field: str) -> None:
    """Null says that weights are not quantized; how attention is computed changes no result."""
    path = folder / "config.json"
    value = None if field == "quantization_config" else "sdpa"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    assert AutoModelForCausalLM.from_pretrained(folder).config["vocab_size"] == 20


def test_fields_of_gpt2_by_the_names_of_other_families(tmp_path: Path) -> None:
    """transformers reads both, and programs ask any model for its hidden_size."""
    transformers = pytest.importorskip("transformers")
    fields = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
              "max_position_embeddings": 8}
    theirs, ours = transformers.GPT2Config(**fields), GPT2Config(**fields)
    for name in (*fields, "n_embd", "n_layer", "n_head", "n_positions"):
        assert getattr(ours, name) == ours[name] == getattr(theirs, name), name
    assert not set(fields) & set(ours.to_dict()) - {"vocab_size"} and ours.replace(hidden_size=32).n_embd == 32
    GPT2LMHeadModel(ours).save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, num_attention_heads=4).spec.heads == 4
    with pytest.raises(ValueError, match="GPT2Config: hidden_size and n_embd are one field, and have two values"):
        GPT2Config(hidden_size=16, n_embd=32)


@pytest.mark.parametrize("kinds", [5, [["sliding_attention"]]])
def test_kinds_of_layers_that_are_no_names(kinds: Any) -> None:
    with pytest.raises(ValueError, match="is no list of names"):
        MistralConfig(num_hidden_layers=1, layer_types=kinds).architecture()


@pytest.mark.parametrize("name", ["../out.safetensors", "/etc/x.safetensors", "a/../../out.safetensors", "", ".", 7,
                                  "model.bin", "a\\b/../x.safetensors", "sub/./../x.safetensors", "x\0.safetensors"])
def test_shards_lie_in_the_folder(folder: Path, name: Any) -> None:
    shutil.copy(next(folder.glob("*.safetensors")), folder.parent / "out.safetensors")
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map=dict.fromkeys(places, name))
    with pytest.raises(ValueError, match="no safetensors file below the folder"):
        AutoModelForCausalLM.from_pretrained(folder)


def test_a_shard_that_is_missing(folder: Path) -> None:
    sorted(folder.glob("*.safetensors"))[1].unlink()
    with pytest.raises(FileNotFoundError, match="has no model-00002"):
        AutoModelForCausalLM.from_pretrained(folder)


def test_a_tensor_that_is_not_where_the_index_says(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    places = json.loads(index.read_text())["weight_map"]
    name, other = sorted(places)[0], next(p for p in sorted(places.values()) if p != places[sorted(places)[0]])
    edit(index, weight_map={**places, name: other})
    with pytest.raises(ValueError, match="where the index says it is"):
        AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize("cut", [0, 7, 40, -1])
def test_a_shard_that_is_cut(folder: Path, cut: int) -> None:
    shard = next(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:cut])
    with pytest.raises(ValueError, match="damaged"):
        AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', "\xff"])
def test_a_configuration_that_is_no_json_object(folder: Path, text: str) -> None:
    (folder / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"config\.json is (damaged|no JSON object)"):
        AutoModelForCausalLM.from_pretrained(folder)


def test_weights_that_are_no_numbers_of_a_model(folder: Path) -> None:
    shard = next(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes().replace(b'"F32"', b'"I32"', 1))
    with pytest.raises(ValueError, match="holds int32, where weights are floating point"):
        AutoModelForCausalLM.from_pretrained(folder)


def test_null_that_is_another_value_is_kept(tmp_path: Path) -> None:
    sizes = {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
             "num_attention_heads": 2, "num_key_value_heads": 2}
    MistralForCausalLM(MistralConfig(**sizes, sliding_window=None)).save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).spec.windows == (None,)


def test_pickles_are_not_read(folder: Path) -> None:
    for file in folder.glob("model*"):
        file.unlink()
    (folder / "pytest_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(FileNotFoundError, match="is a pickle"):
        AutoModelForCausalLM.from_pretrained(folder)


def test_a_name_in_the_cache_of_models(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a snapshot are links to blobs, as Hugging Face's tools make them."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    kept = tmp_path / "hub" / "models--ours--small"
    (kept / "blobs").mkdir(parents=True)
    (kept / "snapshots" / "abc").mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    for file in folder.iterdir():
        shutil.copy(file, kept / "blobs" / file.name)
        (kept / "snapshots" / "abc" / file.name).symlink_to(Path("../../blobs") / file.name)
    assert AutoModelForCausalLM.from_pretrained("ours/small").parameter_count() > 0
    for name in ("ours/other", "../hub/x", "a/b/c", ""):
        with pytest.raises(FileNotFoundError):
            find_folder(name)
    with pytest.raises(FileNotFoundError, match="has no revision 'v2'"):
        find_folder("ours/small", "v2")


def test_a_class_of_another_family(folder: Path) -> None:
    from genesis.models import Qwen3ForCausalLM
    with pytest.raises(ValueError, match="of type 'llama', not 'qwen3'"):
        Qwen3ForCausalLM.from_pretrained(folder)
    with pytest.raises(TypeError, match="takes a LlamaConfig, not a Qwen3Config"):
        LlamaForCausalLM(Qwen3Config())


@pytest.mark.parametrize("family", ["Llama", "GPT2"])
def test_a_tied_head_that_is_stored_otherwise_is_not_tied(family: str, tmp_path: Path) -> None:
    """The files are right, whatever `config.json` says; a head that is the table's copy stays tied."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    sizes = {"Llama": {"vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
                       "num_attention_heads": 2},
             "GPT2": {"vocab_size": 20, "n_embd": 16, "n_head": 2, "n_layer": 1, "n_positions": 32}}[family]
    torch.manual_seed(0)
    kind = getattr(transformers, "GPT2LMHeadModel" if family == "GPT2" else "LlamaForCausalLM")
    kind(getattr(transformers, f"{family}Config")(**sizes, tie_word_embeddings=False)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    theirs = kind.from_pretrained(tmp_path).eval()
    with pytest.warns(UserWarning, match="two tables that differ"):
        ours = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        wanted = theirs(torch.arange(8)[None]).logits
    assert torch.allclose(torch.tensor(ours(genesis.arange(8).unsqueeze(0)).logits.tolist()), wanted, atol=1e-5)
    ours.save_pretrained(tmp_path / "again")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    assert again.lm_head.weight is not again.model.embed_tokens.weight and not again.config.tie_word_embeddings
    state = genesis.load(tmp_path / WEIGHTS)
    table = next(name for name in state if "embed_tokens" in name or "wte" in name)
    genesis.save({**state, "lm_head.weight": state[table]}, tmp_path / WEIGHTS)
    tied = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert tied.lm_head.weight is tied.model.embed_tokens.weight


def test_a_dtype_and_a_tied_head(tmp_path: Path) -> None:
    model = LlamaForCausalLM(CONFIG.replace(tie_word_embeddings=True))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=genesis.bfloat16)
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert {p.dtype for p in again.parameters()} == {genesis.bfloat16}


def test_more_experts_for_a_token_than_there_are(tmp_path: Path) -> None:
    """transformers makes such a model, and its first token is an error in the middle of a layer."""
    with pytest.raises(ValueError, match="num_experts_per_tok=8 is out of range: there are 3 experts"):
        Qwen3MoeConfig(num_experts=3).architecture()
    for none in ({"mlp_only_layers": list(range(24))}, {"num_experts": 0}):  # layers with experts
        assert not any(Qwen3MoeConfig(**{"num_experts": 3, **none}).architecture().experts)


@pytest.mark.parametrize("given", [
    {"num_experts": 4}, {"num_local_experts": 4}, {"num_experts": 4, "num_local_experts": None},
    {"num_experts": 128, "num_local_experts": 4}])
def test_the_count_of_experts_by_either_name(given: dict[str, Any]) -> None:
    """transformers 4 reads `num_experts` alone, so that it is what is written."""
    config = Qwen3MoeConfig(num_experts_per_tok=2, **given)
    written = config.to_dict()
    assert config.num_local_experts == written["num_experts"] == 4 and "num_local_experts" not in written
    assert all(x is not None and x.count == 4 for x in config.architecture().experts)
    theirs = pytest.importorskip("transformers").Qwen3MoeConfig(**{k: v for k, v in given.items() if v is not None})
    assert theirs.num_experts == 4
