"""Torch's openmp, which is not there: whoever asks is told so."""


def is_available() -> bool:
    """False."""
    return False
