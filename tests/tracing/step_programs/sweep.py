"""Run a range of random steps: `python -m tests.tracing.step_programs.sweep 0 1000`."""

from __future__ import annotations

from tests.tracing.fuzzing import Fuzzer
from tests.tracing.programs.run import difference
from tests.tracing.step_programs.draw import draw, draw_written

FUZZER = Fuzzer(draw, difference)
WRITTEN_FUZZER = Fuzzer(draw_written, difference)
"""Steps with an optimizer that is written in them."""

if __name__ == "__main__":
    FUZZER.main()
