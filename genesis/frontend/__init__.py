"""The frontend, which records: tensors, the storages that they show, grad mode, random state, printing.

In: calls of `genesis.ops` and the tensors that users hold. Out: nodes of `genesis.ir`, and storages whose content is
a node. Nothing here computes or knows a backend: the engine is handed in.
"""
