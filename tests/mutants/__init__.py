"""Planted faults: small mistakes in genesis/, each with the tests that must notice it (`make mutate`).

`faults/` is the table, a file a room; `table` reads it, `run` plants one fault after another in a copy of the tree and
runs its tests there, `test_table` says that each row still fits the code.
"""
