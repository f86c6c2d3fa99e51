"""Running CPU plans: host memory of tensors (`storage.py`), and the executors of torch calls.

In: a `Plan`, memories and numbers. Out: outputs' memories. `executor.py` runs any plan, `straight_line.py` one that has
run a few times, `one_call.py` one of a single call; `failed_call.py` says which op a failing call was; `gloo.py` moves
data between processes.
"""
