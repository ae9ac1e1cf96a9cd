"""`python -m gpulift`. A report begins to read before all other commands are imported."""

import sys

from gpulift.entry import call

if __name__ == "__main__":
    if sys.argv[1:2] == ["report"]:
        from gpulift.report.command import app

        sys.exit(call(app, sys.argv[2:], "gpulift report"))
    from gpulift.cli import main

    sys.exit(main())
