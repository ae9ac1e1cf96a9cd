"""Programs that take the place of a cluster: sinfo, srun, kubectl, Ray's Python, and gpulift."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# What a node does is in a file of its name: shell, as `exit 5`.
GPULIFT = """\
#!/bin/sh
node=${NODE:-$SLURMD_NODENAME}
out=; for argument in "$@"; do [ "$last" = --out ] && out=$argument; last=$argument; done
asked=${*%% --out*} rank=${RANK:-$SLURM_PROCID}
echo "$node $rank $asked $WORLD_SIZE $MASTER_ADDR" >> "$STANDIN/calls"
[ -z "$GPULIFT_RANKS_KEY" ] || echo "$asked $GPULIFT_RANKS_KEY" >> "$STANDIN/keys"
echo "$asked"
echo "progress of $rank" >&2
mkdir -p "$out"
[ "$1" = run ] || echo '{"checks": []}' > "$out/qualification.json"
echo "$rank" > "$out/written"
[ ! -f "$STANDIN/$1-$node" ] || . "$STANDIN/$1-$node"
"""
SINFO = """\
#!/bin/sh
case $* in *=%R*) echo all; echo tests ;; *=all\\ *) cat "$STANDIN/nodes" ;; esac
"""
SRUN = """\
import os, subprocess, sys
options = dict(one.lstrip("-").partition("=")[::2] for one in sys.argv if one.startswith("--"))
at = sys.argv.index("sh")
each = int(options["ntasks-per-node"])
tasks = [
    subprocess.Popen(
        sys.argv[at:],
        env={**os.environ, "SLURMD_NODENAME": node, "SLURM_PROCID": str(first + rank)},
    )
    for first, node in zip(range(0, 9999, each), options["nodelist"].split(","))
    for rank in range(each)
]
sys.exit(max(task.wait() for task in tasks))
"""
KUBECTL = """\
import os, subprocess, sys
if "get" in sys.argv:
    print(open(os.environ["STANDIN"] + "/pods").read())
    sys.exit()
at = sys.argv.index("--stdin")
node = sys.argv[at + 1].removeprefix("pod-of-")
sys.exit(subprocess.call(sys.argv[at + 3:], env={**os.environ, "NODE": node}))
"""
RAY = """\
import json, os
def init(address, **options):
    if address != "head:6379":
        raise ConnectionError(f"no Ray at {address}")
def nodes():
    return json.load(open(os.environ["STANDIN"] + "/nodes"))
class Remote:
    def __init__(self, call):
        self.call = call
    def options(self, scheduling_strategy, **options):
        self.node = scheduling_strategy
        return self
    def remote(self, *arguments):
        os.environ["NODE"] = self.node
        return self.call(*arguments)
remote = Remote
def get(value):
    return value
"""
STRATEGIES = "def NodeAffinitySchedulingStrategy(node_id, soft):\n    return node_id\n"


def install(folder: Path, own_gpulift: Path) -> None:
    """Writes all of them; `own_gpulift` is the one that nodes call by its place."""
    write_program(own_gpulift, GPULIFT)
    write_program(folder / "gpulift", GPULIFT)
    write_program(folder / "sinfo", SINFO)
    write_program(folder / "srun", f"#!{sys.executable}\n{SRUN}")
    write_program(folder / "kubectl", f"#!{sys.executable}\n{KUBECTL}")
    write_program(folder / "ray", "#!/bin/sh\n")
    (folder / "modules" / "ray" / "util").mkdir(parents=True)
    (folder / "modules" / "ray" / "__init__.py").write_text(RAY, "utf-8")
    strategies = folder / "modules" / "ray" / "util" / "scheduling_strategies.py"
    strategies.write_text(STRATEGIES, "utf-8")
    python = f'#!/bin/sh\nPYTHONPATH="{folder}/modules" exec "{sys.executable}" "$@"\n'
    write_program(folder / "python", python)


def pod(node: str, gpus: int = 0, **status: Any) -> dict[str, Any]:
    """As `kubectl get pods` shows it; one that runs unless told otherwise."""
    running = {"podIP": f"ip-of-{node}", "containerStatuses": [{"state": {"running": {}}}]}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "metadata": {"name": f"pod-of-{node}"},
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
        "status": status or running,
    }


def ray_node(node: str, alive: bool = True, **resources: float) -> dict[str, Any]:
    """As `ray.nodes()` shows it."""
    return {
        "NodeID": node,
        "NodeManagerHostname": node,
        "NodeManagerAddress": f"ip-of-{node}",
        "Alive": alive,
        "Resources": resources,
    }


def write_json(file: Path, value: Any) -> None:
    """For a stand-in that shows it."""
    file.write_text(json.dumps(value), encoding="utf-8")


def write_program(file: Path, source: str) -> None:
    """One that can be called."""
    file.write_text(source, encoding="utf-8")
    file.chmod(0o755)
