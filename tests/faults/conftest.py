"""Leaves out of the engine's account the threads that run the tests: else nothing runs on stand-ins here."""

import pytest


@pytest.fixture(autouse=True)
def _alone(threads_left_out: None) -> None:
    """Numbers and sizes are inputs of what is captured here."""
