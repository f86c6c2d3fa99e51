"""Plans for sizes that change: one compilation serves every size of a symbolic axis.

In: a captured program. Out: the program with a symbolic batch size (`symbolic_batch.py`), the key that programs of
all sizes share (`shape_erased_key.py`), and the template that is filled in for a size (`plan_template.py`).
"""
