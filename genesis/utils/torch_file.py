"""Files of `torch.save`, read without torch and without running anything that they say.

The archive (`torch_archive`; before version 1.6 `torch_legacy`) has a pickle and the bytes of the storages
(`torch_storages`). The pickle's names are looked up in a table (`torch_names`) by `restricted_pickle`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from genesis.frontend.tensor import Tensor
from genesis.ir.types import Device, DType
from genesis.utils.restricted_pickle import Interpreter, Outside, check_result
from genesis.utils.safetensors_file import Damaged
from genesis.utils.sources import Source, read_exactly
from genesis.utils.torch_archive import Archive, open_archive
from genesis.utils.torch_legacy import is_legacy, open_legacy
from genesis.utils.torch_names import allowed_names, refusal
from genesis.utils.torch_storages import Measuring, Reader

ZIP: Final = b"PK\3\4"
"""What a zip archive begins with, and so what torch has written since version 1.6."""

LEAVES: Final = (str, bytes, bytearray, int, float, bool, complex, type(None), Tensor, Device, DType)
"""What a file's object is made of, beside containers."""


def is_torch_file(start: bytes) -> bool:
    """Whether a file that begins so is a zip archive, or a pickle of torch's or another's.

    A safetensors file begins with a length below 10⁸, then a brace.
    """
    return (start[:4] == ZIP or (start[:1] == b"\x80" and start[1:2] in b"\2\3\4\5")) and start[8:9] != b"{"


def read_torch_file(source: Source, place: Callable[[Tensor, str], Tensor], mapped: bool) -> Any:
    """The object in a file of torch's.

    Args:
        source: the file.
        place: puts a storage's tensor on its device, given the device's name in the file.
        mapped: storages are the file's mapped pages, as far as they are on the CPU; writing to them changes no file.

    Raises:
        Damaged: it is no file of torch's, or says what is not read.
    """
    start = source.file.tell()
    head = read_exactly(source.file, 32)
    source.file.seek(start)
    if is_legacy(head):
        archive, program = open_legacy(source, _measured, refusal)
    elif head[:4] == ZIP:
        archive = open_archive(source)
        program = archive.read("data.pkl")
    else:
        raise Damaged("it is a pickle, and a pickle is a program, which is not run; torch.save of dictionaries, lists "
                      "and tensors writes files that are read")
    reader = Reader(archive, place, mapped)
    try:
        found = Interpreter(program, allowed_names(), reader.storage, refusal).run()
    except Outside as error:
        raise error.reason from None
    check_result(found, LEAVES)
    return found


def _measured(data: bytes, at: int, archive: Archive) -> tuple[int, dict[str, tuple[int, int]]]:
    """Where the pickle ends that begins at a place, and the storages that it asks for."""
    reader = Measuring(archive, lambda tensor, _: tensor, False)
    pickle = Interpreter(data, allowed_names(), reader.storage, refusal, at)
    pickle.run()
    return pickle.at, reader.storages
