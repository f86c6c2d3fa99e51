"""What programs override in torch's layers, or take from them under names of torch's own, beside torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

LIBRARIES = pytest.mark.parametrize("T", [genesis, torch], ids=["genesis", "torch"])


def drawn(T: Any, module: Any) -> Any:
    """The module with parameters that both libraries get alike."""
    rng = np.random.default_rng(0)
    with T.no_grad():
        for p in module.parameters():
            p.copy_(T.tensor(rng.standard_normal(tuple(p.shape)).astype("float32")))
    return module


def data(T: Any, *shape: int) -> Any:
    return T.tensor(np.random.default_rng(1).standard_normal(shape).astype("float32"))


def same(run: Any) -> None:
    """A function of a library gives torch's numbers."""
    ours, theirs = run(genesis), run(torch)
    np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_convolutions_of_other_weights(n: int, mode: str) -> None:
    """A convolution whose weight is standardized, as normalizer-free networks have it, and one in an override."""
    def run(T: Any) -> Any:
        kind = getattr(T.nn, f"Conv{n}d")

        class Standardized(kind):  # type: ignore[misc, valid-type]
            def forward(self, x: Any) -> Any:
                w = self.weight
                dims = tuple(range(1, w.dim()))
                w = (w - w.mean(dims, keepdim=True)) / (w.std(dims, keepdim=True) + 1e-5)
                return self._conv_forward(x, w, self.bias)

        class Doubled(kind):  # type: ignore[misc, valid-type]
            def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
                return super()._conv_forward(input, 2 * weight, bias)
        net = drawn(T, T.nn.Sequential(Standardized(2, 4, 3, padding=1, padding_mode=mode),
                                       Doubled(4, 2, 3, padding=1, padding_mode=mode)))
        return net(data(T, 2, 2, *(5,) * n))
    same(run)


def test_a_convolutions_border() -> None:
    for options in ({"padding": (1, 2)}, {"padding": "same", "dilation": (1, 2)}, {"padding": "valid"}):
        borders = [list(T.nn.Conv2d(1, 1, (3, 4), **options)._reversed_padding_repeated_twice)
                   for T in (genesis, torch)]
        assert borders[0] == borders[1]


@LIBRARIES
def test_a_norm_of_other_dimensions(T: Any) -> None:
    class Anything(T.nn.modules.batchnorm._BatchNorm):  # type: ignore[misc, name-defined]
        def _check_input_dim(self, input: Any) -> None:
            if input.dim() > 4:
                raise ValueError("too many")
    norm = Anything(3)
    assert norm(T.ones(2, 3)).shape == (2, 3) and norm(T.ones(2, 3, 4, 4)).shape == (2, 3, 4, 4)
    with pytest.raises(ValueError, match="too many"):
        norm(T.ones(2, 3, 1, 1, 1))
    with pytest.raises(ValueError, match="expected 4D input"):
        T.nn.BatchNorm2d(3)._check_input_dim(T.ones(2, 3))


@pytest.mark.parametrize("first", [False, True])
def test_parts_of_transformer_layers(first: bool) -> None:
    def run(T: Any) -> Any:
        class Encoder(T.nn.TransformerEncoderLayer):  # type: ignore[misc, name-defined]
            def _sa_block(self, x: Any, attn_mask: Any, key_padding_mask: Any, is_causal: bool = False) -> Any:
                x, self.seen = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                                              need_weights=True)
                return self.dropout1(x)

            def _ff_block(self, x: Any) -> Any:
                return 2 * super()._ff_block(x)

        class Decoder(T.nn.TransformerDecoderLayer):  # type: ignore[misc, name-defined]
            def _mha_block(self, x: Any, mem: Any, *args: Any, **kwargs: Any) -> Any:
                return super()._mha_block(x, mem + 1, *args, **kwargs)
        options = {"dropout": 0.0, "batch_first": True, "norm_first": first}
        encoder, decoder = drawn(T, Encoder(4, 2, 8, **options)), drawn(T, Decoder(4, 2, 8, **options))
        x = data(T, 2, 3, 4)
        memory = encoder(x)
        return T.cat([encoder.seen.flatten(), decoder(x, memory).flatten()])
    same(run)


@LIBRARIES
def test_first_values_of_attention_are_drawn_by_a_method_that_programs_replace(T: Any) -> None:
    class Small(T.nn.MultiheadAttention):  # type: ignore[misc, name-defined]
        def _reset_parameters(self) -> None:
            T.nn.init.constant_(self.in_proj_weight, 0.5)

    class Ones(T.nn.Transformer):  # type: ignore[misc, name-defined]
        def _reset_parameters(self) -> None:
            for p in self.parameters():
                T.nn.init.ones_(p)
    assert Small(4, 2).in_proj_weight.unique().tolist() == [0.5]
    assert all((p == 1).all() for p in Ones(4, 2, 1, 1, 8).parameters())


@LIBRARIES
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}, {"proj_size": 2}])
def test_lists_of_recurrent_weights(T: Any, options: dict[str, Any]) -> None:
    rnn = T.nn.LSTM(3, 4, **options)
    named = dict(rnn.named_parameters())
    assert [name for names in rnn._all_weights for name in names] == list(named) == rnn._flat_weights_names
    assert [p is q for part in rnn.all_weights for p in part for q in named.values()].count(True) == len(named)
    assert all(p is q for p, q in zip(rnn._flat_weights, named.values(), strict=True))
    assert len(rnn.all_weights) == options.get("num_layers", 1) * (2 if "bidirectional" in options else 1)


def test_weights_of_a_recurrent_layer_are_dropped() -> None:
    """A wrapper that replaces the layer's weights by masked ones at each call, as AWD-LSTM has it."""
    def run(T: Any) -> Any:
        class Dropped(T.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, module: Any, names: list[str]):
                super().__init__()
                self.module, self.names = module, names
                for name in names:
                    raw = getattr(module, name)
                    del module._parameters[name]
                    self.register_parameter(name + "_raw", T.nn.Parameter(raw.data))
                    setattr(module, name, raw.clone())
                module.flatten_parameters = lambda *args, **kwargs: None

            def forward(self, x: Any, mask: Any) -> Any:
                for name in self.names:
                    setattr(self.module, name, getattr(self, name + "_raw") * mask)
                return self.module(x)
        net = Dropped(drawn(T, T.nn.LSTM(3, 4)), ["weight_hh_l0"])
        optimizer = T.optim.SGD(net.parameters(), 0.1)
        for turn in range(3):
            optimizer.zero_grad()
            found, _ = net(data(T, 5, 2, 3), (data(T, 16, 4) > 0.3 * turn).to(T.float32))
            found.pow(2).sum().backward()
            optimizer.step()
        assert sorted(net.state_dict()) == sorted(["weight_hh_l0_raw", "module.weight_ih_l0", "module.bias_ih_l0",
                                                   "module.bias_hh_l0"])
        return T.cat([found.flatten(), net.weight_hh_l0_raw.flatten()])
    same(run)


@LIBRARIES
def test_members_of_a_users_own_modules(T: Any) -> None:
    class Meta(T.nn.Module):  # type: ignore[misc, name-defined]
        def meta_named_parameters(self, prefix: str = "", recurse: bool = True) -> Any:
            members = self._named_members(lambda m: m._parameters.items() if isinstance(m, Meta) else [],
                                          prefix=prefix, recurse=recurse)
            yield from members

    class Net(Meta):
        def __init__(self) -> None:
            super().__init__()
            self.own = T.nn.Parameter(T.ones(1))
            self.shared = self.own
            self.inner = Meta()
            self.inner.weight = T.nn.Parameter(T.ones(2))
            self.plain = T.nn.Linear(1, 1)
    assert [name for name, _ in Net().meta_named_parameters("net")] == ["net.own", "net.inner.weight"]
    assert [name for name, _ in Net().meta_named_parameters(recurse=False)] == ["own"]


@LIBRARIES
def test_dictionaries_of_parameters(T: Any) -> None:
    weights = T.nn.ParameterDict({"a": T.ones(1), "b": T.zeros(1)})
    assert weights.setdefault("a", None) is weights["a"] and weights.setdefault("c", T.ones(2)).shape == (2,)
    assert weights.popitem()[0] == "c" and list(weights.keys()) == ["a", "b"]
    other = weights.copy()
    del other["a"]
    assert list(other.keys()) == ["b"] and "a" in weights and other["b"] is weights["b"]
    assert list(weights.fromkeys(["x", "y"], 1.0).items()) == [("x", 1.0), ("y", 1.0)]


def layers(T: Any) -> list[Any]:
    nn = T.nn
    return [nn.LazyInstanceNorm1d(), nn.LazyInstanceNorm2d(affine=False), nn.LazyInstanceNorm3d(1e-5, 0.1, True, False),
            nn.LazyBatchNorm1d(), nn.LazyBatchNorm2d(track_running_stats=False), nn.LazyBatchNorm3d(affine=False)]


def test_lazy_norms_have_what_torchs_have() -> None:
    shapes = [(2, 3, 4), (2, 3, 4, 4), (2, 3, 4, 4, 4), (2, 3), (2, 3, 4, 4), (2, 3, 4, 4, 4)]
    for ours, theirs, shape in zip(layers(genesis), layers(torch), shapes, strict=True):
        assert list(ours.state_dict()) == list(theirs.state_dict()) and repr(ours) == repr(theirs)
        found = ours(data(genesis, *shape)), theirs(data(torch, *shape))
        np.testing.assert_allclose(found[0].tolist(), found[1].tolist(), rtol=1e-4, atol=1e-5)
        assert list(ours.state_dict()) == list(theirs.state_dict()) and repr(ours) == repr(theirs)
        assert all(v.tolist() == pytest.approx(theirs.state_dict()[k].tolist()) for k, v in ours.state_dict().items())


def lazy_and_whole(T: Any) -> list[tuple[Any, Any, tuple[int, ...]]]:
    nn = T.nn
    return [(nn.LazyLinear(2), nn.Linear(4, 2), (3, 4)),
            (nn.LazyConv2d(4, 2, groups=2), nn.Conv2d(6, 4, 2, groups=2), (1, 6, 3, 3)),
            (nn.LazyConvTranspose1d(4, 2, groups=2), nn.ConvTranspose1d(6, 4, 2, groups=2), (1, 6, 3)),
            (nn.LazyBatchNorm1d(), nn.BatchNorm1d(3), (4, 3)),
            (nn.LazyBatchNorm2d(affine=False), nn.BatchNorm2d(3, affine=False), (4, 3, 2, 2)),
            (nn.LazyInstanceNorm1d(), nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (4, 3, 2))]


LOADING = [pytest.param(T, which, id=f"{T.__name__}-{which}") for T in (genesis, torch) for which in range(6)
           if (T, which) != (torch, 5)]  # torch's LazyInstanceNorm refuses inputs then: its num_features stays 0


@pytest.mark.parametrize(("T", "which"), LOADING)
def test_a_lazy_layer_loads_what_the_ordinary_one_saved(T: Any, which: int) -> None:
    """A model that is made to go on from a file: its parameters have shapes then, and stay those of the optimizer."""
    lazy, whole, shape = lazy_and_whole(T)[which]
    drawn(T, whole)(data(T, *shape))
    before, asked = list(lazy.parameters()), data(T, *shape)
    model = T.nn.Sequential(lazy)
    assert not any(model.load_state_dict(T.nn.Sequential(whole).state_dict()))
    assert all(x is y for x, y in zip(before, model.parameters(), strict=True))
    assert T.equal(model(asked), whole(asked)) and type(lazy) is type(whole)
    assert all(T.equal(x, whole.state_dict()[name]) for name, x in lazy.state_dict().items())


@LIBRARIES
def test_a_lazy_layer_has_the_attributes_that_are_known(T: Any) -> None:
    nn = T.nn
    lazy = nn.LazyConv2d(3, 2, padding=1)
    assert (lazy.in_channels, lazy.out_channels, lazy.kernel_size, lazy.padding) == (0, 3, (2, 2), (1, 1))
    assert (nn.LazyLinear(3).in_features, nn.LazyLinear(3).out_features, nn.LazyBatchNorm2d().num_features) == (0, 3, 0)
    assert nn.LazyLinear(3).reset_parameters() is None and nn.LazyBatchNorm1d().reset_parameters() is None
    with pytest.raises(TypeError):
        nn.LazyLinear(3, biass=True)


def test_arguments_that_layers_keep() -> None:
    for T in (genesis, torch):
        assert T.nn.MaxUnpool2d(2).kernel_size == T.nn.MaxUnpool2d(2).stride == (2, 2)
        assert T.nn.MaxUnpool1d(3, 2, 1).padding == (1,) and T.nn.Upsample(scale_factor=2).name == "Upsample"
