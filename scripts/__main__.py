"""What ./gpulift runs: Python finds modules beside a file that it runs, and `-m` in the current
folder."""

import sys

from gpulift.__main__ import guarded

sys.exit(guarded())
