"""What programs of torch's ask of modules beside layers: hooks, packed sequences, parametrizations, LBFGS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

X = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")


def linear(T: Any) -> Any:
    """A layer with the same weights in both libraries."""
    layer = T.nn.Linear(3, 2)
    with T.no_grad():
        layer.weight.copy_(T.tensor(X[:2] * 0.5))
        layer.bias.copy_(T.tensor(X[3, :2]))
    return layer


def same(run: Any, rtol: float = 1e-5) -> None:
    for ours, theirs in zip(run(genesis), run(torch), strict=True):
        if isinstance(theirs, torch.Tensor):
            np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=rtol, atol=1e-6)
        else:
            assert ours == theirs


def test_full_backward_hooks_see_and_replace_gradients() -> None:
    def run(T: Any) -> Any:
        layer, seen = linear(T), []
        layer.register_full_backward_hook(lambda m, gin, gout: (seen.extend([gin[0], gout[0]]), (gin[0] * 2,))[1])
        x = T.tensor(X, requires_grad=True)
        layer(x).pow(2).sum().backward()
        return [*seen, x.grad, layer.weight.grad]
    same(run)


def test_hooks_of_forward_with_keywords_in_order_and_of_all_modules() -> None:
    def run(T: Any) -> Any:
        layer, seen = linear(T), []
        layer.register_forward_hook(lambda m, args, out: seen.append("second"))
        layer.register_forward_hook(lambda m, args, kwargs, out: seen.append(sorted(kwargs)), with_kwargs=True,
                                    prepend=True)
        common = T.nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append("all"))
        layer(input=T.tensor(X))
        common.remove()
        layer(T.tensor(X))
        return seen
    same(run)


def test_modules_that_save_and_load_by_themselves() -> None:
    def run(T: Any) -> Any:
        class Own(T.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer, self.count = linear(T), 3

            def get_extra_state(self) -> Any:
                return {"count": self.count}

            def set_extra_state(self, state: Any) -> None:
                self.count = state["count"] + 1
        module, other = Own(), Own()
        module.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
        saved = module.state_dict()
        other.load_state_dict(saved)
        found = [sorted(saved), other.count]
        del saved["layer.bias"]
        return [*found, list(module.load_state_dict(saved).missing_keys)]
    same(run)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_sequences_through_layers(kind: str, bidirectional: bool) -> None:
    def run(T: Any) -> Any:
        rnn, layer = T.nn.utils.rnn, getattr(T.nn, kind)(3, 2, batch_first=True, bidirectional=bidirectional)
        draws = np.random.default_rng(1)
        with T.no_grad():
            for p in layer.parameters():
                p.copy_(T.tensor(draws.standard_normal(tuple(p.shape)).astype("float32")))
        x = T.tensor(draws.standard_normal((3, 4, 3)).astype("float32"), requires_grad=True)
        out, last = layer(rnn.pack_padded_sequence(x, [2, 4, 1], batch_first=True, enforce_sorted=False))
        padded, lengths = rnn.pad_packed_sequence(out, batch_first=True, total_length=5)
        (padded.pow(2).sum() + (last[1] if kind == "LSTM" else last).sum()).backward()
        return [padded, lengths, *(last if kind == "LSTM" else [last]), x.grad, layer.weight_hh_l0.grad]
    same(run)


def test_lbfgs_with_a_line_search() -> None:
    def run(T: Any) -> Any:
        T.set_default_dtype(T.float64)
        try:
            w = T.tensor([-1.2, 1.0], requires_grad=True)
            optimizer = T.optim.LBFGS([w], max_iter=8, line_search_fn="strong_wolfe")

            def closure() -> Any:
                optimizer.zero_grad()
                loss = (1 - w[0]) ** 2 + 100 * (w[1] - w[0] ** 2) ** 2
                loss.backward()
                return loss
            return [optimizer.step(closure) for _ in range(5)] + [w]
        finally:
            T.set_default_dtype(T.float32)
    same(run)


def test_spectral_norms() -> None:
    def run(T: Any) -> Any:
        old = T.nn.utils.spectral_norm(linear(T))
        with T.no_grad():
            old.weight_u.copy_(T.tensor([1.0, 0.0]))
            old.weight_v.copy_(T.tensor([1.0, 0.0, 0.0]))
        results = [old(T.tensor(X)) for _ in range(3)]
        results[-1].sum().backward()
        return [*results, old.weight_orig.grad, sorted(old.state_dict()),
                sorted(T.nn.utils.remove_spectral_norm(old).state_dict())]
    same(run)


def test_typed_tensors_and_bytes() -> None:
    def run(T: Any) -> Any:
        return [T.LongTensor([1, 2]), T.FloatTensor([[1, 2]]), tuple(T.DoubleTensor(2, 3).shape),
                isinstance(T.ones(2), T.FloatTensor), T.tensor([1.0, -2.0]).view(T.int32),
                T.tensor([1, 2], dtype=T.int32).apply_(lambda x: x + 1), T.ones(2).add(T.ones(2), alpha=T.tensor(3.0))]
    same(run)


def test_names_that_are_left_out_say_what_to_use_instead() -> None:
    assert not hasattr(genesis, "fx") and not hasattr(genesis.nn, "quantized")
    with pytest.raises(AttributeError, match=r"genesis\.save"):
        _ = genesis.onnx
    with pytest.raises(ImportError, match=r"genesis\.save"):
        __import__("genesis.export")


def test_bytes_of_bfloat16_are_views_as_those_of_other_dtypes() -> None:
    def run(T: Any) -> Any:
        x = T.tensor([[1.5, -2.25]]).to(T.bfloat16)
        bits = x.view(T.int16)
        bits[0, 1] += 1
        whole = T.tensor([[1.0, -2.0]]).view(T.bfloat16)
        return [bits, x.float(), whole.float(), whole.view(T.float32), x.view(T.uint8)]
    same(run)


def test_a_tensor_without_dimensions_is_a_size() -> None:
    def run(T: Any) -> Any:
        n, x = T.tensor([1, 2]).max() + 1, T.arange(3.0)
        made = [T.zeros(n), T.ones(n), T.empty(n), T.rand(n), T.randn(n), x.new_zeros(n), x.new_ones(n), x.view(n),
                x.reshape(n), T.ones(1).expand(n), x.repeat(n), x.tile(n), T.zeros(np.array(2))]
        return [tuple(each.shape) for each in made]
    same(run)


def test_low_level_losses_reduce_only_when_asked() -> None:
    def run(T: Any) -> Any:
        x, y = T.tensor(X), T.tensor(X[::-1].copy())
        one = T.ones(4)
        return [T.hinge_embedding_loss(x, T.ones(4, 3)), T.kl_div(x, y.exp()),
                T.margin_ranking_loss(x, y, T.ones(4, 3)), T.cosine_embedding_loss(x, y, one),
                T.triplet_margin_loss(x, y, x * 2), T.kl_div(x, y.exp(), 1),
                T.binary_cross_entropy_with_logits(x, y.sigmoid()),
                T.ctc_loss(T.zeros(4, 2, 3), T.tensor([[1, 2], [2, 1]]), T.tensor([4, 4]), T.tensor([2, 1]))]
    same(run)


def test_a_state_dict_prints_as_torchs() -> None:
    def run(T: Any) -> Any:
        return [repr(linear(T).state_dict()), str(T.nn.ReLU().state_dict())]
    same(run)


def test_a_hook_behind_accumulation_returns_nothing() -> None:
    for T in (torch, genesis):
        x = T.ones(2, requires_grad=True)
        x.register_post_accumulate_grad_hook(lambda p: p.grad * 2)
        with pytest.raises(RuntimeError, match="hooks should return None"):
            x.sum().backward()


def test_a_softmax_without_a_dimension_warns() -> None:
    for T in (torch, genesis):
        x = T.ones(2, 3)
        for name, run in {"softmax": T.nn.functional.softmax, "log_softmax": T.nn.functional.log_softmax,
                          "softmin": T.nn.functional.softmin}.items():
            with pytest.warns(UserWarning, match=f"Implicit dimension choice for {name} "):
                run(x)
        with pytest.warns(UserWarning, match="Implicit dimension choice for softmax ") as told:
            T.nn.Sequential(T.nn.Softmax())(x)
        if T is genesis:
            with pytest.warns(UserWarning) as told:
                T.nn.functional.softmax(x)
            assert told[0].filename == __file__


def test_normal_numbers_are_no_integers() -> None:
    for T in (torch, genesis):
        for draw in (lambda T=T: T.randn(2, dtype=T.int64), lambda T=T: T.ones(2, dtype=T.int64).uniform_()):
            with pytest.raises(NotImplementedError):
                draw()


def test_what_a_printed_loss_was_made_by_has_torchs_name() -> None:
    def run(T: Any) -> Any:
        F = T.nn.functional
        x, table = T.tensor(X, requires_grad=True), T.nn.Embedding(4, 3, padding_idx=0)
        made = [x.norm(), F.pad(x, (1, 1)), table(T.tensor([1, 0])), T.nn.BatchNorm1d(3).eval()(x), x.exp(), x.mean()]
        return [each.grad_fn.name() for each in made]
    same(run)
