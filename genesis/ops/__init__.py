"""The functions that users call, with torch's names and signatures. Each module holds functions and, as a
mixin, the tensor methods that are the same functions.

In: tensors and Python numbers. Out: tensors whose nodes are recorded; nothing is computed.
"""
