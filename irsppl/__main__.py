"""`python -m irsppl`: the command line."""

import sys

from irsppl.cli import main

if __name__ == "__main__":
    sys.exit(main())
