"""Rematerialization: compute again what is cheaper than a store and a load.

In: a `Schedule` of a step. Out: the same step with second computations behind `recompute` barriers (`remat.py`,
`rewrite.py`), chosen by a minimum cut between forward and backward (`network.py`, `min_cut.py`) of what takes less time
(`step_time.py`).
"""
