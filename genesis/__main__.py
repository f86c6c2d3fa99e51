"""`python -m genesis` is the `genesis` command."""

import sys

from genesis.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
