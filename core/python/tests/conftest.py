"""Where the tests find what lies with the worker and with the build, in no package."""

import sys
from pathlib import Path

CORE = Path(__file__).parents[2]
sys.path[:0] = [str(CORE / "python"), str(CORE / "cmake")]
