"""A GPU for machines without one: the driver's contract on host memory, kernels run by Triton's interpreter. Slow."""
