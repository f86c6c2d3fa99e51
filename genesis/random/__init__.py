"""Random state under torch.random's names: seeds, and states that can be kept and put back.

In: a seed, or a state. Out: the state that the next numbers are drawn from.

>>> import genesis
>>> state = genesis.random.get_rng_state()
>>> drawn = genesis.rand(3)
>>> genesis.random.set_rng_state(state)
>>> bool((genesis.rand(3) == drawn).all())
True
"""

from genesis.frontend.generator import (
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from genesis.ir.suggest import suggesting

__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed",
           "set_rng_state"]

__getattr__ = suggesting(__name__)
