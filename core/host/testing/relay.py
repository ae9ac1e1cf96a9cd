"""Stands for a rank elsewhere as gpulift.ranks does, but starts its worker here: `relay.py MODULES
CLOCK_ERROR RANK`. It tells each window as if the clock were known to this part of it."""

import json
import os
import subprocess
import sys
from threading import Thread

ON_DESCRIPTOR_3 = ["/bin/sh", "-c", 'exec "$@" 3>&1 1>/dev/null', "sh"]


def pass_on(questions, worker):
    """Until there are no more."""
    for line in questions:
        worker.stdin.write(line)
        worker.stdin.flush()
    worker.stdin.close()


def main(modules, clock_error, rank):
    """Until the worker ends: the same exit code."""
    questions = sys.stdin.buffer
    first = json.loads(questions.readline())
    start = first.pop("start")
    script = os.path.join(modules, start["file"])
    worker = subprocess.Popen(
        [*ON_DESCRIPTOR_3, sys.executable, os.path.join(modules, "gpulift_worker.py"), script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **start["environment"]},
    )
    assert first["rank"] == int(rank) == int(start["environment"]["RANK"])
    worker.stdin.write(json.dumps(first).encode() + b"\n")
    worker.stdin.flush()
    Thread(target=pass_on, args=(questions, worker), daemon=True).start()
    for line in worker.stdout:
        answer = json.loads(line)
        if "host_s" in answer:
            answer["clock_error_s"] = float(clock_error) * answer["host_s"]
        os.write(3, json.dumps(answer).encode() + b"\n")
    os._exit(worker.wait())


if __name__ == "__main__":
    main(*sys.argv[1:])
