"""`functional_call`, by the name that it had first."""

from genesis.func.modules import functional_call

__all__ = ["functional_call"]
