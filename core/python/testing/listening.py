"""Where processes of this machine listen."""

from __future__ import annotations

from pathlib import Path

LISTENING = "0A"  # TCP_LISTEN of the kernel
OF_IP4, OF_IP6 = "0100007F", "00000000000000000000000001000000"


def ports_open_to_others(pid: int | str) -> list[str]:
    """Addresses and ports, as the kernel writes them, at which the process may be reached from
    outside."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    own = {str(one.readlink()) for one in descriptors if one.is_symlink()}
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return [
        at
        for _, at, _, state, _, _, _, _, _, inode, *_ in lines
        if state == LISTENING and f"socket:[{inode}]" in own and not at.startswith((OF_IP4, OF_IP6))
    ]
