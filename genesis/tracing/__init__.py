"""`genesis.compile`: capture a call once, replay it while everything it depended on holds.

In: a function or module and a call's arguments. Out: the call's results, from a replay where all guards hold, from
the function itself where one does not. `compiled.py` is the entrance, `compiled_function.py` looks a call up,
`call_capture.py` captures one, `guards.py` says what a call depended on.
"""
