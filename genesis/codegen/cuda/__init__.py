"""What only code generation for CUDA needs: the model of a GPU that tiles, splits and kernels are chosen for."""
