"""Programs that take what they do in parts: optimizers with several groups and dtypes, weights in several files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import genesis
from genesis import optim
from genesis.models.folder import INDEX, StoredWeights
from genesis.models.llama import LlamaConfig, LlamaForCausalLM
from tests.faults.programs import PROGRAMS, Case, Recipe, Statement, Training

GROUPS: Final = {
    "AdamW": lambda groups: optim.AdamW(groups, lr=0.25, amsgrad=True),
    "SGD momentum": lambda groups: optim.SGD(groups, lr=0.5, momentum=0.9, nesterov=True),
    "Adagrad": lambda groups: optim.Adagrad(groups, lr=0.25),
}
"""Optimizers over groups."""


class Buckets(Training):
    """Matrices decay and vectors do not, in two dtypes: a step is an op for each of four buckets."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        parameters = list(self.net.parameters())
        self.opt = GROUPS[recipe.optimizer]([
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.125},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0, "lr": 0.125}])
        iteration = [*self._iteration()]
        self.statements = iteration * (recipe.warm + 2)

    def observe(self) -> Any:
        found = super().observe()
        found.kept["lr"] = [group["lr"] for group in self.opt.param_groups]
        return found


class ShardedLoading(Case):
    """A model's weights come from files with an index: one after the other, all at once, and as a new model."""

    def __init__(self) -> None:
        super().__init__()
        config = LlamaConfig(vocab_size=5, hidden_size=4, intermediate_size=6, num_hidden_layers=1,
                             num_attention_heads=1, num_key_value_heads=1, max_position_embeddings=8)
        saved, self.net = LlamaForCausalLM(config), LlamaForCausalLM(config)
        with genesis.no_grad():
            for i, (p, q) in enumerate(zip(saved.parameters(), self.net.parameters(), strict=True)):
                p.fill_(i + 1.0)
                q.fill_(-1.0)
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        saved.save_pretrained(folder, max_shard_bytes=200)
        assert (folder / INDEX).is_file()
        shards = sorted(folder.glob("*.safetensors"))
        genesis.eval(list(self.net.parameters()))
        self.statements = [*(
            Statement(f"net.load_state_dict(genesis.load({path.name!r}), strict=False)",
                      lambda path=path: self.net.load_state_dict(genesis.load(path), strict=False) and None)
            for path in shards),
            Statement("net.load_state_dict(saved)", lambda: self.net.load_state_dict(self._stored(folder)) and None),
            Statement("scale = net.lm_head.weight.sum().item()",
                      lambda: {"scale": self.net.lm_head.weight.sum().item()}, ("scale",)),
            Statement("head = from_pretrained(folder).lm_head.weight",
                      lambda: {"head": LlamaForCausalLM.from_pretrained(folder).lm_head.weight}, ("head",))]
        self.starts = [*range(len(self.statements) + 1)]
        self.target = (0, len(self.statements))

    @staticmethod
    def _stored(folder: Path) -> dict[str, Any]:
        return {name: genesis.tensor(array) for name, array in StoredWeights(folder).items()}

    def kept(self) -> Iterator[tuple[str, Any]]:
        return chain(self.net.named_parameters(), self.net.named_buffers())


PROGRAMS.update({
    **{f"buckets of {name}": lambda device, name=name: Buckets(Recipe(
        model="mixed dtypes", optimizer=name, device=device)) for name in GROUPS},
    "compiled buckets": lambda device: Buckets(Recipe(
        model="mixed dtypes", optimizer="AdamW", compiled="step", device=device)),
    "clipped buckets": lambda device: Buckets(Recipe(
        model="mixed dtypes", optimizer="AdamW", clip="norm", device=device)),
    "sharded loading": lambda device: ShardedLoading(),
})
