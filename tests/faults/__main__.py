"""`python -m tests.faults`: inject faults and print the table of docs/reliability.md.

    python -m tests.faults --kinds line,allocation --programs "step of SGD,reads"
    python -m tests.faults --kinds opcode --every 10 --show
    python -m tests.faults --kinds line,opcode --once faults.tsv   # each place once; begun again, it goes on
    python -m tests.faults --summary faults.tsv
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from time import process_time

from tests.faults.programs import PROGRAMS
from tests.faults.signals import count_signals
from tests.faults.table import KINDS, count
from tests.faults.tried import Tried, summary


def main() -> int:
    """Count, print, and return 1 if something is inconsistent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="names, separated by commas")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--devices", default="cpu", help="cpu, h200 (the fake GPU), gpu (a real one: signals)")
    parser.add_argument("--every", type=int, default=1, help="each how manieth fault")
    parser.add_argument("--first", type=int, default=0, help="from which on")
    parser.add_argument("--signals", type=int, default=200, help="how many signals, where the kind is signal")
    parser.add_argument("--twice", action="store_true", help="signals come in pairs, one soon after the other")
    parser.add_argument("--show", action="store_true", help="print what is inconsistent")
    parser.add_argument("--once", type=Path, help="a file of what was tried: each place of a statement once")
    parser.add_argument("--summary", type=Path, nargs="+", help="print what came of the faults in these files")
    given = parser.parse_args()
    if given.summary:
        print(summary(given.summary))
        return 0
    once = None if given.once is None else Tried(given.once)
    tried = wrong = 0
    print("| program | device | fault at each | tried | inconsistent | consistent: |\n|---|---|---|---|---|---|")
    for device in given.devices.split(","):
        for program in given.programs.split(","):
            for kind in given.kinds.split(","):
                began = process_time()
                row = (count_signals(program, device, given.signals, given.first, given.twice) if kind == "signal"
                       else count(program, device, kind, given.every, given.first, once))
                tried, wrong = tried + row.tried, wrong + len(row.inconsistent)
                print(row, f" {process_time() - began:.0f} s" if given.show else "", flush=True, sep="")
                if given.show:
                    for (text, place, problem), number in Counter(
                            (v.text, str(v.place), v.problem) for v in row.inconsistent).most_common(40):
                        print(f"    {number} × {text} at {place}: {problem}")
    print(f"\n{tried} faults, {wrong} inconsistent")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
