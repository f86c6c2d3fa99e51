"""The frontend, which records: tensors, the storages that they show, grad mode, random state, printing.

In: calls of `genesis.ops` and the tensors that users hold. Out: nodes of `genesis.ir`, and storages whose content is
a node. Nothing here computes or knows a backend: the engine is handed in.

| file | what it does |
|---|---|
| `tensor.py`, `storage.py`, `views.py`, `view_geometry.py`, `layouts.py` | a tensor, and what it shows of a memory |
| `tensor_methods.py` | the methods that other rooms give it |
| `recording.py`, `pending.py`, `writes.py` | from tensors to nodes and back; what waits; writes through tensors |
| `state.py`, `session.py`, `engine_protocol.py` | what is recorded; what a capture notes; the engine |
| `grad_mode.py`, `autocast_policy.py`, `default_dtypes.py`, `runtime_settings.py`, `switching.py` | modes |
| `boundaries.py`, `detached.py` | values at which backward runs Python; histories of detached tensors |
| `generator.py`, `draw_parts.py` | random state |
| `host_values.py`, `outside.py`, `transfer.py`, `printing.py` | elements on the host, elsewhere, as text |
| `traced_number.py` | what code sees of a size or a number while it is traced |
| `at_once.py`, `threads.py` | changes that nothing interrupts; other threads meanwhile |
| `public_functions.py`, `other_words.py`, `other_orders.py`, `patches.py`, `later.py` | how users call what is public |
"""
