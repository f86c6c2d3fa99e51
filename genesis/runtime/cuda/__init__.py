"""Running CUDA plans: the driver, streams, memory pool, kernels on disk, executor and graphs.

In: a `Plan`, memories and numbers. Out: outputs' memories. `driver.py` says what is asked of CUDA;
`cuda_python_driver.py` and the files beside it do it.
"""
