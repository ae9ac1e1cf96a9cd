"""The walls around a candidate: namespaces, a read-only file system, limits, another user, a filter
of system calls. Standard library alone, since it stands before anything else is imported.

What this machine refuses is kept with its reason: a verdict says it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NOBODY = 65534
USERS = 1 << 30  # and up: ids that belong to no one
NEW_USER, NEW_PIDS, NEW_NETWORK, NEW_MOUNTS, NEW_IPC = 1 << 28, 1 << 29, 1 << 30, 1 << 17, 1 << 27
SPACES = {
    "network": (NEW_NETWORK, "no network"),
    "processes": (NEW_PIDS, "sees no other process"),
    "files": (NEW_MOUNTS, "read-only files but for a scratch"),
    "shared memory": (NEW_IPC, "no shared memory of others"),
}
SCRATCHES = ("/tmp", "/dev/shm", "/var/tmp")
PRIVATE, READ_ONLY, NO_SUID, NO_DEVICES, RECURSIVE = 1 << 18 | 1 << 14, 1, 2, 4, 0x8000
MOUNT_SETATTR, AT_CWD = 442, -100
DEATH_SIGNAL, DUMPABLE, KEEP_CAPABILITIES, DROP_BOUND, NO_NEW_PRIVILEGES = 1, 4, 8, 24, 38
MAY_READ = 1 << 2  # CAP_DAC_READ_SEARCH
CAPABILITIES, CAPABILITY_VERSION = 41, 0x20080522
OPEN_FILES = 256
NONE = 0xFFFFFFFF  # a system call that this architecture lacks
# By name: its number on x86-64 and on AArch64.
DENIED = {
    **{"fork": (57, NONE), "vfork": (58, NONE), "execve": (59, 221), "execveat": (322, 281)},
    **{"kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138)},
    **{"rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438)},
    **{"pidfd_send_signal": (424, 424), "ptrace": (101, 117), "process_madvise": (440, 440)},
    **{"process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "socket": (41, 198)},
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51)},
    **{"mount_setattr": (442, 442), "move_mount": (429, 429), "open_tree": (428, 428)},
    **{"fsopen": (430, 430), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280)},
    **{"io_uring_setup": (425, 425), "userfaultfd": (323, 282), "perf_event_open": (298, 241)},
    **{"keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218)},
    **{"clock_settime": (227, 112), "settimeofday": (164, 170), "adjtimex": (159, 171)},
    **{"clock_adjtime": (305, 266), "setpriority": (141, 140), "sched_setscheduler": (144, 119)},
    **{"sched_setparam": (142, 118), "sched_setattr": (314, 274), "ioprio_set": (251, 30)},
    **{"open_by_handle_at": (304, 265), "kexec_load": (246, 104), "init_module": (175, 105)},
    **{"finit_module": (313, 273), "memfd_create": (319, 279), "shmget": (29, 194)},
    **{"chmod": (90, NONE), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452)},
}
CLONE, CLONE3, TGKILL, PRLIMIT, SECCOMP = (56, 220), (435, 435), (234, 131), (302, 261), (317, 277)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
OF_THREADS = 1 << 16  # CLONE_THREAD
LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
ALLOW, KILL, ERRNO, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50000, 1, 38
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in what the filter sees
OTHER_ABI = 1 << 30  # x32, whose numbers are others


class Walls:
    """Which walls stand, and why others do not."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.missing: dict[str, str] = {}

    def enter(self, told: Callable[[int], None]) -> None:
        """Returns in a child of its own namespaces; `told` gets its number in this one, which waits
        for it and ends as it does."""
        self._unshare()
        prctl(DEATH_SIGNAL, signal.SIGKILL)  # of the judge, which may be killed
        child = os.fork()
        if child:
            told(child)
            for descriptor in range(3, OPEN_FILES):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        prctl(DEATH_SIGNAL, signal.SIGKILL)

    def close(self, needed: Iterable[str]) -> None:
        """Closes the file system; what is `needed` stays readable. The driver of a card names its
        threads in /proc and keeps files in /dev/shm, or does not start."""
        if "files" in self.missing:
            return
        try:
            _mount(None, "/", None, PRIVATE)
            if "processes" not in self.missing:
                self._try("its own /proc", lambda: _mount("proc", "/proc", "proc", 0))
            scratches = [
                one
                for one in SCRATCHES
                if os.path.isdir(one) and not any(path.startswith(one + "/") for path in needed)
            ]
            for one in scratches:
                _mount("tmpfs", one, "tmpfs", NO_SUID | NO_DEVICES, "size=64m,mode=1777")
            _set_mount("/", READ_ONLY | NO_SUID, 0, RECURSIVE)
            for one in scratches[:2] + ["/proc"] * ("its own /proc" in self.held):
                _set_mount(one, 0, READ_ONLY, 0)
            for one in scratches[:1]:
                os.chdir(one)
        except OSError as error:
            self._lacks("files", error)

    def drop(
        self, memory: int | None, file: int, cpu_s: int, threads: int, needed: Iterable[str]
    ) -> None:
        """Takes all rights away that are left, for good."""
        closed = _closed_to_others(needed)
        if os.geteuid():
            self.missing["another user"] = "only root can give it one"
        else:
            os.setgroups([])
            prctl(KEEP_CAPABILITIES, 1)
            os.setresgid(NOBODY, NOBODY, NOBODY)
            _become_another_user()
            self.held.append("another user")
            if closed:
                self.missing["reading"] = f"{closed} is closed to others, so it reads what root may"
        prctl(DEATH_SIGNAL, signal.SIGKILL)  # which a change of user forgets
        self._limit(memory, file, cpu_s, threads)
        kept = MAY_READ if "reading" in self.missing else 0
        said = "no capability but to read" if kept else "no capabilities"
        self._try(said, lambda: _drop_capabilities(kept))
        self._try("no new privileges", lambda: prctl(NO_NEW_PRIVILEGES, 1))
        self._try("a filter of system calls", _filter_calls)

    def _unshare(self) -> None:
        if os.geteuid():
            user, group = os.getuid(), os.getgid()
            try:
                _checked(LIBC.unshare(NEW_USER))
                Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
                Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
                Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
            except OSError:
                pass  # what needs it fails below, and says so
        for name, (flag, said) in SPACES.items():
            try:
                _checked(LIBC.unshare(flag))
                self.held.append(said)
            except OSError as error:
                self._lacks(name, error)

    def _limit(self, memory: int | None, file: int, cpu_s: int, threads: int) -> None:
        limits = {
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_FSIZE: file,
            resource.RLIMIT_NOFILE: OPEN_FILES,
            resource.RLIMIT_NPROC: threads,
            resource.RLIMIT_CPU: cpu_s,
        }
        if memory is None:
            self.missing["memory"] = "a card's driver reserves more addresses than any limit"
        else:
            limits[resource.RLIMIT_AS] = memory
        for limit, most in limits.items():
            resource.setrlimit(limit, (most, most))
        self.held.append("limits")

    def _try(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
            self.held.append(name)
        except OSError as error:
            self._lacks(name, error)

    def _lacks(self, name: str, error: OSError) -> None:
        self.missing[name] = error.strerror or "refused"
        said = SPACES.get(name, (0, name))[1]
        self.held = [one for one in self.held if one != said]


def prctl(option: int, value: int) -> None:
    """Raises OSError."""
    _checked(LIBC.prctl(option, value, 0, 0, 0))


def call_filter(machine: str, process: int) -> bytes:
    """The program of seccomp: no new process and no other program, no tracing, no socket, no
    mounts, no clocks, no priorities, no signals but to itself. Raises OSError where the numbers of
    the architecture are not known."""
    if machine not in ARCHITECTURES:
        raise OSError(0, f"{machine} has other system calls")
    column, architecture = ARCHITECTURES[machine]
    deny = (RETURN, 0, 0, ERRNO | EPERM)
    program = [
        *((LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL)),
        *((LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, OTHER_ABI), deny),
        *((EQUAL, 0, 1, CLONE3[column]), (RETURN, 0, 0, ERRNO | ENOSYS)),
    ]
    for numbers in DENIED.values():
        if numbers[column] != NONE:
            program += [(EQUAL, 0, 1, numbers[column]), deny]
    for numbers, test, value in (
        (CLONE, ANY_BIT, OF_THREADS),
        (TGKILL, EQUAL, process),
        (PRLIMIT, EQUAL, 0),
    ):
        # Allowed by its first argument alone.
        program += [
            *((EQUAL, 0, 4, numbers[column]), (LOAD, 0, 0, FIRST_ARGUMENT)),
            *((test, 1, 0, value), deny, (RETURN, 0, 0, ALLOW)),
        ]
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *one) for one in program)


def _filter_calls() -> None:
    machine = platform.machine()
    code = call_filter(machine, os.getpid())
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HxxxxxxP", len(code) // 8, ctypes.addressof(held))
    number = SECCOMP[ARCHITECTURES[machine][0]]
    _checked(LIBC.syscall(number, 1, 1, program))  # a filter, for all threads


def _become_another_user() -> None:
    """One that no other candidate is, since the system counts threads by user, of all judges that
    root runs at once; nobody where the namespace has no such ids."""
    for user in (USERS + int.from_bytes(os.urandom(3), "big"), NOBODY):
        try:
            return os.setresuid(user, user, user)
        except OSError:
            if user == NOBODY:
                raise


def _drop_capabilities(kept: int) -> None:
    for capability in range(CAPABILITIES):
        LIBC.prctl(DROP_BOUND, capability, 0, 0, 0)  # refused to who has none
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    _checked(LIBC.capset(header, struct.pack("=6I", kept, kept, 0, 0, 0, 0)))


def _closed_to_others(needed: Iterable[str]) -> str:
    """The first folder that another user cannot enter, of those that lead to what is needed."""
    for path in needed:
        for folder in (Path(path), *Path(path).parents):
            if folder.is_dir() and not folder.stat().st_mode & 0o001:
                return str(folder)
    return ""


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = [one and one.encode() for one in (source, target, kind)]
    _checked(LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None))


def _set_mount(path: str, to_set: int, to_clear: int, flags: int) -> None:
    attributes = struct.pack("=QQQQ", to_set, to_clear, 0, 0)
    _checked(
        LIBC.syscall(
            MOUNT_SETATTR,
            AT_CWD,
            path.encode(),
            flags,
            attributes,
            ctypes.c_size_t(len(attributes)),
        )
    )


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
