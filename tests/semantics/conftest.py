"""Lets the tests here import `torch_programs` from the folder above."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


@pytest.fixture
def only_new_garbage() -> None:
    """What exists when the test begins is left out of its garbage collections, which makes them quick."""
    gc.collect()
    gc.freeze()
