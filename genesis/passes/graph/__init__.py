"""Passes from Graph to Graph: inlining, autodiff, canonical form, patterns, legalization, splits.

In and out: an immutable `Graph`. Which of them run, for which backend and in which order, is `passes/pipeline.py`.
"""
