"""Runs a user's script as Python runs it, for the commands that look at what it does."""

from __future__ import annotations

import runpy
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path


def run_script(script: str, arguments: list[str]) -> int:
    """Run it with these arguments; what it prints goes to stderr. Returns 0, or 1 if it failed, whose error or last
    words (`sys.exit("…")`) are shown as Python shows them."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        with redirect_stdout(sys.stderr):
            runpy.run_path(script, run_name="__main__")
        return 0
    except SystemExit as leaving:
        if leaving.code is not None and not isinstance(leaving.code, int):
            print(leaving.code, file=sys.stderr)
        return 0 if leaving.code in (None, 0) else 1
    except Exception:  # the script's own
        traceback.print_exc()
        return 1
    finally:
        sys.argv, sys.path = argv, path
