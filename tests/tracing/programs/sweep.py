"""Run a range of random programs: `python -m tests.tracing.programs.sweep 0 1000`."""

from __future__ import annotations

from tests.tracing.fuzzing import Fuzzer
from tests.tracing.programs.draw import draw
from tests.tracing.programs.run import difference

FUZZER = Fuzzer(draw, difference)

if __name__ == "__main__":
    FUZZER.main()
