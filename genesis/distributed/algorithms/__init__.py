"""What stands on collectives: communication hooks, under torch's names.

In: buckets of gradients. Out: the same, reduced over the ranks.
"""

from genesis.ir.suggest import suggesting

__getattr__ = suggesting(__name__)
