"""A GPU for machines without one: the driver's contract on host memory, kernels run by Triton's interpreter. Slow.

In: what `runtime/cuda/driver.py` asks of CUDA (`driver.py`, `streams.py`). Out: the memory that a GPU would leave, or
an error where a kernel reads or writes what it must not (`accesses.py`). `interpreter.py` runs a kernel;
`special_functions.py`, `along_axis.py`, `shared_words.py`, `known_shapes.py` and `plain_operands.py` are what Triton's
interpreter cannot do, or not fast.
"""
