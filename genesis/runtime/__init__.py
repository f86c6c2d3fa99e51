"""The runtime, all that a program needs to run: plans, memory, drivers and executors; each backend has a folder.

In: a `Plan`, memories and numbers. Out: memories with the outputs. Knows types, and nothing of how a plan came to be.
"""
