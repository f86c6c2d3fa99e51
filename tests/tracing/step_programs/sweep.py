"""Run a range of random steps: `python -m tests.tracing.step_programs.sweep 0 1000`, or, with `gradients` behind it,
of those that work on the gradients that they find."""

from __future__ import annotations

import sys

from tests.tracing.fuzzing import Fuzzer
from tests.tracing.programs.run import difference
from tests.tracing.step_programs.draw import draw, draw_gradients, draw_written

FUZZER = Fuzzer(draw, difference)
WRITTEN_FUZZER = Fuzzer(draw_written, difference)
"""Steps with an optimizer that is written in them."""
GRADIENTS_FUZZER = Fuzzer(draw_gradients, difference)
"""Steps that work on the gradients that they find."""

if __name__ == "__main__":
    (GRADIENTS_FUZZER if sys.argv[3:] == ["gradients"] else FUZZER).main()
