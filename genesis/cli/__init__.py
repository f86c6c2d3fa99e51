"""The `genesis` command: one subcommand a file.

In: a command line; `main.py` finds the subcommand's file. Out: text or files, and an exit status.
"""
