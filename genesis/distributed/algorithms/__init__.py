"""What stands on collectives: communication hooks, under torch's names."""

from genesis.ir.suggest import suggesting

__getattr__ = suggesting(__name__)
