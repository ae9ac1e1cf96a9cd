"""`python -m gpulift`."""

import gc
import os
import signal
import sys
import traceback

from gpulift.ground import later, place
from gpulift.ground.errors import INTERNAL, INTERRUPTED, USAGE

# Objects made before Python looks for some that only hold each other. With its 700 it looks through
# all that was read again and again, which is a third of the time of reading.
COLLECTED_AFTER = 50_000


def main() -> int:
    """The exit code."""
    gc.set_threshold(COLLECTED_AFTER)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # and not ignored, as by nohup
            signal.signal(number, signal.default_int_handler)  # what was started ends with us
    if place.INSTALLED:
        from gpulift.engine import libraries

        os.environ.setdefault("GPULIFT_SETUP_PYTHON", sys.executable)  # that of Python arms
        libraries.offer()
    if later.asks_for_help(sys.argv[1:]):
        later.put_off()
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
        remedy = f"pip install {error.name}" if place.INSTALLED else "./gpulift setup"
        return _told(f"error: {lacks}; {remedy} installs what is missing", USAGE)
    except Exception as error:
        traceback.print_exc()
        return _told(f"internal error: {type(error).__name__}: {error}; please report it", INTERNAL)


def _told(message: str, code: int) -> int:
    print(f"gpulift: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(guarded())
