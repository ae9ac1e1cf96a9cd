"""The secret that ranks of one run share: who has not got it can neither start nor answer them."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpulift.ground.errors import GpuliftError

VARIABLE = "GPULIFT_RANKS_KEY"
LEAST_LETTERS = 16
DIGITS = 64  # of a signature
NAME = "ranks.key"


def key_of(environment: Mapping[str, str], *, on_one_host: bool = False) -> bytes:
    """What the launcher gives to all ranks, or else a file of the user's, which is made where there
    is none: in the home, or where that cannot be and all ranks are on one host, in its folder for
    temporary files. Throws GpuliftError where others may read or may have written it."""
    named = environment.get(VARIABLE)
    if named is not None:
        if len(named) < LEAST_LETTERS:
            raise GpuliftError(f"{VARIABLE}: give a secret of {LEAST_LETTERS} letters or more")
        return os.fsencode(named)
    try:
        return _kept(file_of(environment))
    except GpuliftError:
        if not on_one_host:
            raise
    return _kept(Path(tempfile.gettempdir(), f"gpulift-{os.geteuid()}", NAME))


def file_of(environment: Mapping[str, str]) -> Path:
    """Where the user's key is kept: hosts that share their home share it."""
    named = environment.get("XDG_CONFIG_HOME", "")
    above = named if os.path.isabs(named) else os.path.expanduser("~/.config")
    return Path(above, "gpulift", NAME)


def of_run(key: bytes, nonces: Sequence[str]) -> bytes:
    """The key of one run, whose ranks each added a nonce: what was heard of another run is of no
    use in it."""
    return hmac.digest(key, "\n".join(nonces).encode(), "sha256")


def sealed(key: bytes, name: str, text: str) -> str:
    """The text behind its signature, which is of that name alone."""
    return _signature(key, name, text) + text


def opened(key: bytes, name: str, message: str) -> str | None:
    """The text, or None where this key did not sign it for that name."""
    signature, text = message[:DIGITS], message[DIGITS:]
    is_signed = hmac.compare_digest(signature.encode(), _signature(key, name, text).encode())
    return text if is_signed else None


def _signature(key: bytes, name: str, text: str) -> str:
    return hmac.digest(key, f"{name}\n{text}".encode(), "sha256").hex()


def _kept(file: Path) -> bytes:
    try:
        if not file.exists():
            _make(file)
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as opened_file:
            status = os.fstat(descriptor)
            key = opened_file.read().strip()
    except OSError as error:
        raise GpuliftError(
            f"--ranks given: {file} cannot be used ({error}): give all ranks one {VARIABLE}"
        ) from None
    is_own = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
    if not (is_own and stat.S_ISREG(status.st_mode) and len(key) >= LEAST_LETTERS):
        raise GpuliftError(
            f"--ranks given: {file} is not a key that its owner alone can read: remove it, or give"
            f" all ranks one {VARIABLE}"
        )
    return key


def _make(file: Path) -> None:
    """Whole at once: other ranks may make it at the same time, and the first one counts."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(secrets.token_hex(32) + "\n")
    try:
        with suppress(FileExistsError):
            os.link(draft, file)
    finally:
        draft.unlink()
