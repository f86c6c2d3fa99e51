"""Plans for sizes that change: one compilation serves every size of a symbolic axis.

In: a captured program. Out: the program over symbolic sizes (`symbolic_program.py`; `symbols.py` has the sizes), the
key that programs of all sizes share (`shape_erased_key.py`), and the template that is filled in for a size
(`template.py`): of kernels, for GPUs (`plan_template.py`), or of calls, for the CPU (`call_template.py`).
`plan_writer.py` writes either's form.
"""
