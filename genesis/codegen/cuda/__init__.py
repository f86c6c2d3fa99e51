"""Code generation for CUDA: groups → Triton kernels → binaries, for the model of a GPU.

In: a `Schedule` and its `MemoryPlan`. Out: the steps of a `Plan`: launches, and where their operands are.

| file | what it does |
|---|---|
| `lower.py`, `emit.py` | what is supported; which emitter serves which kind of group (`templates/`: all but loops) |
| `build_kernel.py`, `kernel_ir.py`, `index_arithmetic.py` | a loop group as a small program over coordinates |
| `loops.py` | its kernel |
| `blocks.py`, `column_blocks.py`, `held_columns.py`, `row_choice.py` | how much of it a program takes |
| `tiles.py`, `turned_tiles.py` | the same of a pointwise loop, in rows and columns |
| `block_sizes.py` | what a block is, and blocks for sizes that may be symbols |
| `reduction_loops.py`, `unrolled.py` | the loops around the statements of a reduction |
| `accumulators.py`, `online_reductions.py` | what a reduction keeps while its loop runs |
| `emitter.py`, `expressions.py`, `statement_order.py`, `folds.py` | the statements as Triton text |
| `addresses.py`, `carried.py` | where a block's elements are: its shape, addresses and masks |
| `starts.py` | where in a memory a kernel's reads begin: in its argument, not in its text |
| `lowerings.py`, `prelude.py`, `float32_*.py`, `rounded.py` | an op as text, and the functions that it calls |
| `row_edges.py`, `last_programs.py`, `shifted.py` | rows and sizes that begin or end at no multiple of a vector |
| `neighbours.py` | how many neighbours a thread has of what begins anywhere |
| `packed_rows.py`, `rows_across.py`, `shared_rows.py` | short rows of such sizes |
| `prefetch.py`, `early_loads.py` | what a kernel does before it waits for the kernels before it |
| `many_tensors.py`, `side_by_side.py`, `concatenations.py` | several loops in one launch |
| `chosen_parts.py` | concatenations of short parts as one loop |
| `idioms.py`, `naming.py` | the kernel's name |
| `symbolic_sizes.py` | sizes in a kernel's text that become arguments |
| `source.py`, `compile.py`, `workers.py`, `worker.py` | the text, and the processes that compile it |
| `gpu_model.py` | all that the compiler knows of a GPU |
| `choices.py`, `choice_table.py`, `tuning.py`, `alone.py` | tiles and forms: by a model, tables, or timed now |
"""
