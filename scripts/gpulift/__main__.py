"""`python -m gpulift`. A report begins to read before all other commands are imported."""

import sys

from gpulift.errors import INTERRUPTED


def main() -> int:
    """The exit code."""
    if sys.argv[1:2] == ["report"]:
        from gpulift.entry import call
        from gpulift.report.command import app

        return call(app, sys.argv[2:], "./gpulift report")
    from gpulift import cli

    return cli.main()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while it imports
        print("gpulift: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
