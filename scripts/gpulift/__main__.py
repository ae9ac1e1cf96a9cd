"""`python -m gpulift`."""

import sys

from gpulift.cli import main

if __name__ == "__main__":
    sys.exit(main())
