"""Kernels that are not loops over independent elements: written once, filled in with shapes.

In: a group with one op of the kind. Out: a `KernelSource`.

| file | what it does |
|---|---|
| `matmul.py`, `ragged.py`, `few_vectors.py`, `convolution.py`, `convolution_weight.py` | products |
| `product_lines.py`, `epilogue.py`, `operands.py`, `tile.py` | its loop, what follows it, where operands lie |
| `attention.py`, `attention_backward.py`, `attention_keys.py` | attention by tiles of queries and keys |
| `product_choice.py`, `attention_choice.py` | what each of these can be made with |
| `streamed_matmul.py`, `streamed_attention.py`, `streamed_attention_backward.py` | forms that the copy engine feeds |
| `fma_matmul_gluon.py` | float32 products of all bits, in Gluon |
| `streamed_*_gluon.py`, `streamed_attention_backward_sums.py` | the text of streamed forms, in Gluon |
| `rows.py`, `scan.py` | whole rows, and scans along them |
| `sort.py`, `short_sort.py`, `row_digits.py`, `long_sort.py`, `words.py`, `sort_helpers.py` | sorting |
| `scatter.py`, `line_sums.py`, `group_sums.py`, `segments.py` | writes through an index |
| `row_sums.py`, `wide_row_sums.py` | rows added by a short index |
| `exact_sums.py` | sums at places in one launch, by atomics over whole numbers |
| `rows_taken.py` | elements of long rows by one index, from shared memory |
| `block_*.py`, `ordered_hits.py` | rows added by a long index |
| `shared_words.py`, `checked_index.py` | words at computed places of shared memory; indices that are checked |
"""
