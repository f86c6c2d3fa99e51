"""`SummaryWriter`: numbers, histograms, pictures and texts of a run, as files that TensorBoard reads.

Values are read when they are written: each call waits for its tensors.
"""

from __future__ import annotations

import io
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from genesis.ir.suggest import suggesting
from genesis.utils.tensorboard.plugins import MOST_THRESHOLDS, precision_curve, write_embedding


class SummaryWriter:
    """Writes one run into a folder, with torch's names.

    Args:
        log_dir: the folder; runs/date_host without one.
        comment: is added to that name.
        purge_step: what an earlier writer wrote there from this step on is not shown.
        max_queue, flush_secs: how many values wait, and how long, before they are in the file.
        filename_suffix: the end of the file's name.

    Raises:
        ModuleNotFoundError: the `tensorboard` package is not installed.
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", purge_step: int | None = None,
                 max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""):
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ModuleNotFoundError("SummaryWriter writes with the 'tensorboard' package: "
                                      "pip install genesis-compiler[tensorboard]", name="tensorboard") from error
        self._event, self._proto = event_pb2, summary_pb2
        self._tensor, self._shape = tensor_pb2.TensorProto, tensor_shape_pb2.TensorShapeProto
        now = datetime.now().strftime("%b%d_%H-%M-%S")
        self.log_dir = os.fspath(log_dir or os.path.join("runs", f"{now}_{socket.gethostname()}{comment}"))
        self._options = (max_queue, flush_secs, filename_suffix)
        self._make: Any = EventFileWriter
        self._file: Any = self._make(self.log_dir, *self._options)
        if purge_step is not None:
            log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._file.add_event(event_pb2.Event(wall_time=time.time(), step=purge_step, session_log=log))

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    # What is written

    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None,
                   new_style: bool = False, double_precision: bool = False) -> None:
        """A number: Python's, numpy's, or a tensor of one element."""
        self._add(global_step, walltime, [self._proto.Summary.Value(tag=tag, simple_value=_number(scalar_value))])

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
                    walltime: float | None = None) -> None:
        """Several numbers in one chart: each has a folder of its own, as torch writes them."""
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            with SummaryWriter(folder) as inner:
                inner.add_scalar(main_tag, value, global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None, bins: Any = "auto",
                      walltime: float | None = None, max_bins: int | None = None) -> None:
        """How values are spread."""
        array = _array(values).astype(np.float64).ravel()
        counts, edges = np.histogram(array, 30 if bins == "tensorflow" else bins)
        if max_bins is not None and len(counts) > max_bins:
            counts, edges = np.histogram(array, max_bins)
        histogram = self._proto.HistogramProto(
            min=array.min(), max=array.max(), num=len(array), sum=array.sum(), sum_squares=float(array @ array),
            bucket_limit=edges[1:].tolist(), bucket=counts.tolist())
        self._add(global_step, walltime, [self._proto.Summary.Value(tag=tag, histo=histogram)])

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
                  dataformats: str = "CHW") -> None:
        """A picture: floats from 0 to 1, or uint8 from 0 to 255; its dimensions are named by the letters C, H and W."""
        array = _array(img_tensor)
        if array.ndim != len(dataformats):
            raise ValueError(f"size of input tensor and input format are different. tensor shape: {array.shape}, "
                             f"input_format: {dataformats}")
        picture = np.einsum(f"{dataformats.lower()}->{'hwc' if 'C' in dataformats else 'hw'}", array)
        self._image(tag, picture, global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
                   dataformats: str = "NCHW") -> None:
        """Several pictures, side by side in rows of about as many as there are rows."""
        pictures = np.einsum(f"{dataformats.lower()}->nhwc", _array(img_tensor))
        self._image(tag, _sheet(pictures), global_step, walltime)

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True,
                   walltime: float | None = None) -> None:
        """A figure of matplotlib's, or a list of them."""
        from matplotlib import pyplot
        for one in figure if isinstance(figure, (list, tuple)) else [figure]:
            png = io.BytesIO()
            one.savefig(png, format="png")
            width, height = one.canvas.get_width_height()
            self._png(tag, png.getvalue(), (height, width, 4), global_step, walltime)
            if close:
                pyplot.close(one)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None,
                 walltime: float | None = None) -> None:
        """A text in Markdown."""
        data = self._proto.SummaryMetadata(plugin_data=self._proto.SummaryMetadata.PluginData(
            plugin_name="text", content=b""))
        text = self._tensor(dtype="DT_STRING", string_val=[text_string.encode()],
                            tensor_shape=self._shape(dim=[self._shape.Dim(size=1)]))
        value = self._proto.Summary.Value(tag=f"{tag}/text_summary", metadata=data, tensor=text)
        self._add(global_step, walltime, [value])

    def add_pr_curve(self, tag: str, labels: Any, predictions: Any, global_step: int | None = None,
                     num_thresholds: int = MOST_THRESHOLDS, weights: Any = None, walltime: float | None = None) -> None:
        """Precision over recall of predictions from 0 to 1 of labels that are 0 or 1."""
        from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData
        count = min(num_thresholds, MOST_THRESHOLDS)
        share = None if weights is None else _array(weights)
        curve = precision_curve(_array(labels), _array(predictions), count, share)
        data = self._proto.SummaryMetadata(plugin_data=self._proto.SummaryMetadata.PluginData(
            plugin_name="pr_curves", content=PrCurvePluginData(version=0, num_thresholds=count).SerializeToString()))
        found = self._tensor(dtype="DT_FLOAT", float_val=curve.ravel().tolist(), tensor_shape=self._shape(
            dim=[self._shape.Dim(size=size) for size in curve.shape]))
        self._add(global_step, walltime, [self._proto.Summary.Value(tag=tag, metadata=data, tensor=found)])

    def add_embedding(self, mat: Any, metadata: Sequence[Any] | None = None, label_img: Any = None,
                      global_step: int | None = None, tag: str = "default",
                      metadata_header: Sequence[str] | None = None) -> None:
        """Rows of a matrix for the projector, with a label and a picture of (count, channels, height, width) for each.

        Raises:
            ValueError: as many labels or pictures as rows are wanted.
        """
        rows = _array(mat)
        pictures = None if label_img is None else np.einsum("nchw->nhwc", _array(label_img))
        for what, given in (("labels", metadata), ("images", pictures)):
            if given is not None and len(given) != len(rows):
                raise ValueError(f"#{what} should equal with #data points: {len(given)} of {len(rows)}")
        name = f"{0 if global_step is None else global_step:05d}/{tag}"
        sprite = None if pictures is None else _png_of(_sheet(pictures))
        size = (0, 0) if pictures is None else pictures.shape[1:3]
        lines = write_embedding(os.path.join(self.log_dir, name.replace("/", "_")), rows, metadata, metadata_header,
                                sprite, size)
        with open(os.path.join(self.log_dir, "projector_config.pbtxt"), "a", encoding="utf-8") as file:
            file.write("\n".join(["embeddings {", f'tensor_name: "{tag}:{name[:5]}"', *lines, "}", ""]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("add_"):
            raise AttributeError(f"SummaryWriter has no {name}: it writes numbers, histograms, pictures, texts, curves "
                                 "and embeddings")
        raise AttributeError(f"'SummaryWriter' object has no attribute '{name}'")

    def add_hparams(self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any],
                    hparam_domain_discrete: Any = None, run_name: str | None = None,
                    global_step: int | None = None) -> None:
        """Settings of the run as a text, and what came of them as numbers."""
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as inner:
            inner.add_text("hparams", f"```\n{json.dumps(dict(hparam_dict), default=str, indent=2)}\n```", global_step)
            for name, value in metric_dict.items():
                inner.add_scalar(name, value, global_step)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True,
                  ) -> None:
        """The model's modules as a text: the program is what `genesis.explain` shows."""
        self.add_text("model", f"```\n{model}\n```")

    # The file

    def flush(self) -> None:
        """Write what waits."""
        self._file.flush()

    def close(self) -> None:
        """Write what waits, and end the file."""
        self._file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _add(self, step: int | None, walltime: float | None, values: Sequence[Any]) -> None:
        event = self._event.Event(wall_time=time.time() if walltime is None else walltime,
                                  summary=self._proto.Summary(value=values))
        if step is not None:
            event.step = int(step)
        self._file.add_event(event)

    def _image(self, tag: str, picture: np.ndarray, step: int | None, walltime: float | None) -> None:
        """A picture [height, width(, channels)]."""
        self._png(tag, _png_of(picture), (*picture.shape, 1)[:3], step, walltime)

    def _png(self, tag: str, png: bytes, shape: Sequence[int], step: int | None, walltime: float | None) -> None:
        height, width, channels = shape
        image = self._proto.Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=png)
        self._add(step, walltime, [self._proto.Summary.Value(tag=tag, image=image)])


def _sheet(pictures: np.ndarray) -> np.ndarray:
    """Pictures [count, height, width, channels] side by side, in rows of about as many as there are rows."""
    count, height, width, channels = pictures.shape
    across = int(np.ceil(np.sqrt(count)))
    sheet = np.zeros((-(-count // across) * height, across * width, channels), pictures.dtype)
    for i, picture in enumerate(pictures):
        y, x = divmod(i, across)
        sheet[y * height:(y + 1) * height, x * width:(x + 1) * width] = picture
    return sheet


def _png_of(picture: np.ndarray) -> bytes:
    """The file of a picture [height, width(, channels)]."""
    from PIL import Image
    scaled = picture if picture.dtype == np.uint8 else (picture * 255).clip(0, 255).astype(np.uint8)
    if scaled.ndim == 3 and scaled.shape[2] == 1:
        scaled = scaled[:, :, 0]
    png = io.BytesIO()
    Image.fromarray(scaled).save(png, format="PNG")
    return png.getvalue()


def _array(values: Any) -> np.ndarray:
    """A tensor, from wherever it is, or anything that numpy takes."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if values.dtype.name == "bfloat16":
            values = values.float()
    return np.asarray(values)


def _number(value: Any) -> float:
    array = _array(value)
    if array.size != 1:
        raise ValueError(f"scalar should be 0D, not of shape {array.shape}")
    return float(array.reshape(()))


__getattr__ = suggesting(__name__)
