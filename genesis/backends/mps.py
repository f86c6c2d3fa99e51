"""Torch's mps, which is not there: whoever asks is told so."""


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False
