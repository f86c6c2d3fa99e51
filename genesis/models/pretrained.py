"""Models that are read from folders and written to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from genesis import Tensor, nn
from genesis.frontend.host_values import from_host
from genesis.ir.types import DTYPES, DType, cpu, dtype_named
from genesis.models.config import ModelConfig
from genesis.models.conversion import Conversion, load_all, save_all
from genesis.models.folder import CONFIG, StoredWeights, find_folder, read_json, write_json, write_weights
from genesis.models.lora import LoRALinear
from genesis.ops.creation import DeviceLike, device_from

if TYPE_CHECKING:
    import numpy as np

SHARD_BYTES = 5_000_000_000
"""The largest file that `save_pretrained` writes, as Hugging Face's tools do."""


OF_TRANSFORMERS: Final[Mapping[str, str]] = {
    "device_map": "device= puts all of the model on one",
    "trust_remote_code": "nothing in a folder is ever executed",
    "attn_implementation": "the compiler chooses how attention is computed",
    "low_cpu_mem_usage": "weights are mapped and moved one after another, always",
    "use_safetensors": "no other files are read",
    "local_files_only": "nothing is ever downloaded",
    "cache_dir": "HF_HUB_CACHE says where the cache is",
    "subfolder": "give the path of that folder",
    "load_in_8bit": "weights are not quantized",
    "load_in_4bit": "weights are not quantized",
}
"""Arguments of `from_pretrained` in transformers, and why there are none here."""


class PreTrainedModel(nn.Module):
    """A model with a configuration, which `from_pretrained` reads and `save_pretrained` writes.

    Attributes:
        config_class: the family's configuration.
        architectures: the names of this model in `config.json`.
    """

    config_class: ClassVar[type[ModelConfig]]
    architectures: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: ModelConfig):
        super().__init__()
        if not isinstance(config, self.config_class):
            raise TypeError(f"{type(self).__name__} takes a {self.config_class.__name__}, "
                            f"not a {type(config).__name__}")
        self.config = config
        self.spec = config.architecture()

    def conversions(self) -> Sequence[Conversion]:
        """Tensors that a folder holds otherwise than the model."""
        return ()

    def stored_here(self, stored: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The tensors of a folder, whichever class of the family wrote it, by the names that this class writes."""
        return stored

    def leave_out(self, stored: Mapping[str, np.ndarray]) -> None:
        """Drop the parts that a folder has no tensors for, and without which the model still is one."""

    def settle_ties(self, sources: Mapping[str, Callable[[], np.ndarray]], path: str) -> None:
        """Untie parameters that a folder holds several values for.

        Args:
            sources: the model's name of a tensor → what reads it.
            path: the folder's, for a warning.
        """

    def ignored(self, name: str) -> bool:
        """Whether a folder may have this tensor although the model does not: a table of constants, a copy."""
        return name.endswith((".rotary_emb.inv_freq", ".masked_bias", ".attn.bias", "position_ids"))

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], *, dtype: DType | str | None = None,
                        device: DeviceLike = None, revision: str = "main", **changes: Any) -> Self:
        """The model in a folder, or in Hugging Face's cache under a name such as "Qwen/Qwen3-0.6B".

        Args:
            folder: where `config.json` and the safetensors files are. Nothing in it is executed.
            dtype: of the weights, or its name; as they are stored by default, and with "auto". Where they are stored in
                several, all get that which the configuration names, or that of most. `torch_dtype`, as transformers
                called it, is the same.
            device: where they go; the CPU by default.
            revision: of a name in the cache.
            changes: other values of fields of the configuration.

        Raises:
            FileNotFoundError: there is no such folder, or a file of it is missing.
            TypeError: there is no such dtype, or no such argument.
            ValueError: a file is damaged, a field is unknown, or tensors are missing, left over or of other shapes.
        """
        wanted = weights_dtype(dtype, changes)
        _check_arguments(changes, cls.config_class)
        path = find_folder(folder, revision)
        fields = read_json(path / CONFIG)
        if fields.get("model_type") != cls.config_class.model_type:
            raise ValueError(f"{path} holds a model of type {fields.get('model_type')!r}, not "
                             f"{cls.config_class.model_type!r}: AutoModelForCausalLM finds the right class")
        if fields.get("quantization_config") is not None:
            raise ValueError(f"{path} holds quantized weights, which Genesis does not read")
        own = cls.config_class.by_own_names
        stored, config = StoredWeights(path), cls.config_class.from_dict({**own(fields), **own(changes)})
        _check_sizes(config, stored, path)
        model = cls(config)
        model._load(stored, wanted or model._one_dtype(stored), device, str(path))
        return model.eval()

    def _one_dtype(self, stored: StoredWeights) -> DType | None:
        """The dtype of all weights where a folder holds several: a layer takes no two. None where it holds one."""
        sizes: dict[DType, int] = {}
        for name, dtype in stored.dtypes.items():
            if dtype.kind == "float" and not self.ignored(name):
                sizes[dtype] = sizes.get(dtype, 0) + stored[name].size
        if len(sizes) < 2:
            return None
        said = str(self.config.get("dtype") or self.config.get("torch_dtype")).removeprefix("torch.")
        named = {dtype.name: dtype for dtype in DTYPES if dtype.kind == "float"}
        return named.get(said) or max(sizes, key=lambda dtype: sizes[dtype])

    def _load(self, stored: StoredWeights, dtype: DType | None, device: DeviceLike, path: str) -> None:
        """Replace the parameters, one after another, by what is stored."""
        found = self.stored_here(stored)
        self.leave_out(found)
        sources = dict(load_all(found, self.conversions(), self.ignored))
        self.settle_ties(sources, path)
        wanted = dict(self.named_parameters(remove_duplicate=False))
        aliases: dict[int, list[str]] = {}
        for name, parameter in wanted.items():
            aliases.setdefault(id(parameter), []).append(name)
        missing = [name for name, parameter in wanted.items()
                   if not any(alias in sources for alias in aliases[id(parameter)])]
        left = [name for name in sources if name not in wanted]
        if missing or left:
            raise ValueError(_difference(path, missing, left))
        done: set[int] = set()
        for name, read in sources.items():
            parameter = wanted[name]
            if id(parameter) in done:  # a tied table that is stored twice
                continue
            done.add(id(parameter))
            array = read()
            if array.dtype.kind not in "fV":
                raise ValueError(f"{path}: {name} holds {array.dtype}, where weights are floating point")
            if tuple(array.shape) != tuple(parameter.shape):
                raise ValueError(f"{path}: {name} is of shape {tuple(array.shape)}, the model's "
                                 f"of {tuple(parameter.shape)}")
            parameter.data = _placed(array, dtype, device)
        if device is not None:
            self.to(device=device)  # buffers

    def save_pretrained(self, folder: str | os.PathLike[str], *, max_shard_bytes: int = SHARD_BYTES) -> None:
        """Write `config.json` and the weights, so that `from_pretrained`, here and in transformers, reads them.

        Where ranks have parts of the weights all of them call this, and the first one writes.

        Args:
            folder: is made if there is none. Weights that an earlier call wrote there are replaced.
            max_shard_bytes: weights of more are written as several files with an index.

        Raises:
            ValueError: the model has low-rank layers beside its own.
        """
        if any(isinstance(module, LoRALinear) for module in self.modules()):
            raise ValueError(f"save_pretrained: this {type(self).__name__} has low-rank layers, which no folder has a "
                             "place for: lora.merge() first, or genesis.save(lora.state_dict(), path) for these alone")
        weights = _whole(self)
        if not weights:
            return
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        held, dtypes = {}, {}
        for name, weight in weights.items():
            held[name] = weight.cpu().contiguous().numpy()
            dtypes[held[name].dtype] = weight.dtype
        arrays = save_all(held, self.conversions())
        write_weights(path, {name: (dtypes[array.dtype], array) for name, array in arrays.items()}, max_shard_bytes)
        dtype = next(iter(self.parameters())).dtype
        fields = {**self.config.to_dict(), "architectures": list(self.architectures) or [_written_class(self).__name__],
                  "dtype": dtype.name}
        fields.pop("torch_dtype", None)
        write_json(path / CONFIG, fields)


def _check_arguments(changes: Mapping[str, Any], config: type[ModelConfig]) -> None:
    """Raise TypeError for what is neither an argument of `from_pretrained` nor a field, as far as it can be told."""
    for name in changes:
        if name in config.fields:
            continue
        if name in OF_TRANSFORMERS:
            raise TypeError(f"from_pretrained takes no {name}: {OF_TRANSFORMERS[name]}; leave it out")
        if near := get_close_matches(name, ("dtype", "device", "revision"), 1):
            raise TypeError(f"from_pretrained takes no {name}; did you mean {near[0]}?")


def _check_sizes(config: ModelConfig, stored: Mapping[str, np.ndarray], path: Path) -> None:
    """Raise ValueError where a size alone is beyond what the files hold: before so much is made."""
    if (layers := config[config.depth]) > len(stored):
        raise ValueError(f"{path}: config.json asks for {layers} layers, where the files hold {len(stored)} tensors")
    spec, held = config.architecture(), sum(array.size for array in stored.values())
    for name in ("vocab_size", "dim", "heads", "head_dim", "hidden", "position_table", "segments"):
        if (size := getattr(spec, name)) > held:
            raise ValueError(f"{path}: config.json asks for {name} = {size}, where the files hold {held} numbers")


def _written_class(model: nn.Module) -> type:
    """The model's class as it was written: sharing a model out gives it another."""
    kind = type(model)
    while "made_of" in vars(kind):
        kind = vars(kind)["made_of"]
    return kind


def _whole(model: nn.Module) -> dict[str, Tensor]:
    """Path → whole value of all parameters, of tied ones the first; nothing on ranks that need not write it."""
    own = dict(model.named_parameters())
    if all(getattr(p, "sharding", None) is None for p in own.values()):
        return {name: p.detach() for name, p in own.items()}
    from genesis.nn.parallel.state_dict import StateDictOptions, get_model_state_dict
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return {name: state[name] for name in own if name in state}


def weights_dtype(dtype: DType | str | None, changes: dict[str, Any]) -> DType | None:
    """The dtype that is asked for; None for that of the files. Takes `torch_dtype` out of the changes.

    >>> weights_dtype("bfloat16", {}), weights_dtype(None, {"torch_dtype": "auto"})
    (genesis.bfloat16, None)

    Raises:
        TypeError: there is no such dtype, or none that weights have.
    """
    older = changes.pop("torch_dtype", None)
    given = older if dtype is None else dtype
    if given is None or given == "auto":
        return None
    found = dtype_named(given.removeprefix("torch.")) if isinstance(given, str) else given
    if not isinstance(found, DType) or found.kind != "float":
        raise TypeError(f"from_pretrained: dtype={given!r} is none that weights have; give genesis.bfloat16, "
                        "\"bfloat16\", or \"auto\" for that of the files")
    return found


def _placed(array: np.ndarray, dtype: DType | None, device: DeviceLike) -> Tensor:
    """A copy of a mapped array where it belongs, straight from the file's pages."""
    place = cpu if device is None else device_from(device)
    tensor = from_host(array, cpu).to(place) if place.type == "meta" else from_host(array, place)
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)


def _difference(path: str, missing: Sequence[str], left: Sequence[str]) -> str:
    def some(names: Sequence[str]) -> str:
        return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    parts = [f"{path} does not hold this model's weights"]
    if missing:
        parts.append(f"missing: {some(missing)}")
    if left:
        parts.append(f"left over: {some(left)}")
    return "; ".join(parts)
