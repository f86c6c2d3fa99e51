"""Faults between any two instants of a program: an exception at each line, at each opcode, at each allocation, at each
call of a plan, and SIGINT at random times.

In: programs as lists of statements (`programs.py`). Out: for each fault whether every tensor is readable afterwards,
whether the state is one that the program had between two statements, and whether going on gives the numbers of the run
that nothing interrupted (`trial.py`). `python -m tests.faults` prints the table of docs/reliability.md.
"""
