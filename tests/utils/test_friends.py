"""Other packages take tensors as they take torch's: numpy's protocol, pandas, Pillow, scikit-learn, matplotlib, tqdm,
Hugging Face's datasets. Each is skipped where its package is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

LIBRARIES = pytest.mark.parametrize("T", [genesis, torch], ids=["genesis", "torch"])


def numbers(T: Any) -> Any:
    return T.arange(6, dtype=T.float32).reshape(2, 3)


@LIBRARIES
def test_numpy_asks_for_arrays(T: Any) -> None:
    x = numbers(T)
    assert np.asarray(x).dtype == np.float32 and np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.array(x, dtype=int).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.__array__(np.dtype("int64")).dtype == np.int64
    assert np.asarray((x + 1).requires_grad_().detach()).sum() == 21
    copied = np.array(x, copy=True)
    copied[0, 0] = 9
    assert x[0, 0] == 0
    assert np.stack([x, x]).shape == (2, 2, 3) and np.concatenate((x, x)).shape == (4, 3)
    assert np.allclose(x, x.numpy()) and np.mean(x.numpy()) == 2.5
    assert np.float32(2) * x.numpy()[1, 1] == 8 and np.asarray([T.tensor(1.5), T.tensor(2.5)]).tolist() == [1.5, 2.5]


@LIBRARIES
def test_numpy_refuses_what_requires_grad(T: Any) -> None:
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(numbers(T).requires_grad_())


@LIBRARIES
def test_pandas(T: Any) -> None:
    pandas = pytest.importorskip("pandas")
    x = numbers(T)
    frame = pandas.DataFrame(x.numpy(), columns=list("abc"))
    assert frame.sum().tolist() == [3, 5, 7]
    assert T.tensor(frame.values).tolist() == x.tolist() and T.from_numpy(frame["b"].to_numpy()).tolist() == [1, 4]
    assert T.tensor(frame["a"].values, dtype=T.float64).tolist() == [0, 3] and pandas.Series(x[0].tolist()).mean() == 1
    assert T.tensor(frame.to_numpy(dtype="int64")).dtype == T.int64
    assert T.tensor(pandas.Series([1.0, 2.0])).tolist() == [1, 2]


@LIBRARIES
def test_pillow(T: Any) -> None:
    image = pytest.importorskip("PIL.Image")
    x = (numbers(T) * 40).to(T.uint8)
    made = image.fromarray(x.numpy())
    assert made.size == (3, 2) and made.mode == "L"
    assert T.from_numpy(np.array(made)).tolist() == x.tolist() == T.tensor(np.asarray(made)).tolist()
    coloured = T.stack([x, x, x]).permute(1, 2, 0)
    assert image.fromarray(coloured.numpy()).mode == "RGB"
    assert T.as_tensor(np.array(made.convert("RGB"))).permute(2, 0, 1).div(255).shape == (3, 2, 3)


@LIBRARIES
def test_scikit_learn(T: Any) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    metrics = pytest.importorskip("sklearn.metrics")
    x, y = T.tensor([[0.0], [1.0], [2.0], [3.0]]), T.tensor([0, 0, 1, 1])
    fitted = linear.LogisticRegression().fit(x, y)
    assert metrics.accuracy_score(y, fitted.predict(x.numpy())) == 1.0
    assert metrics.confusion_matrix(y.numpy(), (x[:, 0] > 1).long()).tolist() == [[2, 0], [0, 2]]


@LIBRARIES
def test_matplotlib(T: Any) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots()
    x = numbers(T)
    (line,) = axes.plot(x[0], x[1] * 2)
    assert line.get_xydata().tolist() == [[0, 6], [1, 8], [2, 10]]
    assert axes.imshow(x).get_array().shape == (2, 3)
    axes.scatter(x[0], x[1])
    assert axes.hist(x.flatten(), bins=2)[0].tolist() == [3, 3]
    axes.axhline(x.mean().item())
    pyplot.close(figure)


@LIBRARIES
def test_tqdm(T: Any) -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    bar = tqdm(T.utils.data.DataLoader(numbers(T), batch_size=1), disable=True)
    assert [batch.shape[0] for batch in bar] == [1, 1]
    bar.set_postfix(loss=T.tensor(1.5).item(), raw=T.tensor(1.5))
    assert [row.sum().item() for row in tqdm(numbers(T), disable=True)] == [3, 12]


@LIBRARIES
def test_datasets(T: Any) -> None:
    made = pytest.importorskip("datasets").Dataset.from_dict({"x": [[0.0, 1.0], [2.0, 3.0]], "y": [0, 1]})
    loader = T.utils.data.DataLoader(made.with_format("numpy"), batch_size=2)
    batch = next(iter(loader))
    assert batch["x"].tolist() == [[0, 1], [2, 3]] and batch["y"].dtype == T.int64
    assert T.tensor(made["y"][:]).tolist() == [0, 1]
