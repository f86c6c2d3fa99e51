"""Lets the tests here import `calls`, and leaves out of the engine's account the threads that run the tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(autouse=True)
def _alone(threads_left_out: None) -> None:
    """Numbers are inputs of what is captured here."""
