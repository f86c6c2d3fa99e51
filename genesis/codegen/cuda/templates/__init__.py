"""Kernels that are not loops over independent elements: written once, filled in with shapes."""
