"""A grammar of small programs over tensors: any mix of the registry's ops, and the gradient of what it made.

`values` says what is known of a value, `pointwise`, `movement`, `rows` and `windows` how a program may go on from the
values that it has, and `program` draws a whole one.
"""

from tests.gpu.grammar.program import Program, programs
from tests.gpu.grammar.values import Step, Value
