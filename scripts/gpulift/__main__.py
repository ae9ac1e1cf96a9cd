"""`python -m gpulift`. A report begins to read before all other commands are imported."""

import sys
import traceback

from gpulift.errors import INTERNAL, INTERRUPTED, USAGE


def main() -> int:
    """The exit code."""
    if sys.argv[1:2] == ["report"]:
        from gpulift.entry import call
        from gpulift.report.command import app

        return call(app, sys.argv[2:], "./gpulift report")
    from gpulift import cli

    return cli.main()


def guarded() -> int:
    """The same, also of what fails while it imports: a mistake of ours is not the code of a
    verdict."""
    try:
        return main()
    except KeyboardInterrupt:
        return _told("interrupted", INTERRUPTED)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpulift"):
            traceback.print_exc()
            return _told(f"internal error: {error}", INTERNAL)
        lacks = f"{sys.executable} lacks the package {error.name}"
        return _told(f"error: {lacks}; ./gpulift setup installs what is missing", USAGE)
    except Exception as error:
        traceback.print_exc()
        return _told(f"internal error: {type(error).__name__}: {error}; please report it", INTERNAL)


def _told(message: str, code: int) -> int:
    print(f"gpulift: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(guarded())
