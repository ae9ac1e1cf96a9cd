"""The candidate's process: `python -I -S worker.py SOCKET`. It raises its walls, loads the function
and calls it as it is told.

Nothing that it says is believed: the judge's clock ends when the memory of the output is sealed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

PROCESS, READY, LOADED, DONE, PROBLEM = b"P", b"R", b"L", b"D", b"E"
MOST_BYTES = 1 << 16
LETTERS = 300


def main() -> None:
    """Ends with the judge's end of the socket."""
    link = socket.socket(fileno=int(sys.argv[1]))
    header, device, _, _ = socket.recv_fds(link, MOST_BYTES, 2)
    asked = {**json.loads(header), "device": device}
    sys.path.append(asked["package"])
    from gpulift.judge import sandbox

    sys.path[:] = [one for one in sys.path if one != asked["package"]] + asked["path"]
    needed = [sys.prefix, sys.base_prefix, *asked["path"]]
    walls = sandbox.Walls()
    walls.enter(lambda child: _tell(link, PROCESS, str(child)))
    walls.close([*needed, asked["package"]])
    try:
        arrays = _arrays(asked)
        walls.drop(asked["memory"], asked["file"], asked["cpu_s"], asked["threads"], needed)
        walled = {"held": walls.held, "missing": walls.missing, "shared": arrays.shared}
        _tell(link, READY, json.dumps(walled))  # the last that is ours alone
        _, (text,), _, _ = socket.recv_fds(link, 1, 1)
        run = _loaded(os.pread(text, asked["letters"], 0), asked["name"], asked["function"])
    except BaseException as error:
        _tell(link, PROBLEM, _told(error))
        os._exit(1)
    os.close(text)
    _tell(link, LOADED, "")
    with contextlib.suppress(BrokenPipeError):
        _serve(link, run, arrays)
    os._exit(0)


def _loaded(source: bytes, name: str, function: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"__name__": "candidate", "__file__": name}
    exec(compile(source, name, "exec"), space)
    run = space.get(function)
    if not callable(run):
        raise TypeError(f"has no function {function}")
    return run  # type: ignore[no-any-return]


def _serve(link: socket.socket, run: Callable[..., Any], arrays: Numpy) -> None:
    while True:
        header, held, _, _ = socket.recv_fds(link, MOST_BYTES, 2)
        if not header:
            return
        call = json.loads(header)
        try:
            made = run(*arrays.inputs(call, held))
            made = made if isinstance(made, (tuple, list)) else (made,)
            wrong = arrays.written(call, held, made)
        except BaseException as error:
            wrong = _told(error)
        for descriptor in held:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        if wrong:
            _tell(link, PROBLEM, wrong)
        else:
            link.send(DONE + bytes.fromhex(call["token"]))


class Numpy:
    """Arrays on the processor: inputs read in place, outputs written into the judge's memory."""

    shared = False  # device memory with the judge

    def __init__(self, asked: dict[str, Any]) -> None:
        import numpy

        self.numpy = numpy

    def inputs(self, call: dict[str, Any], held: Sequence[int]) -> list[Any]:
        """Read-only: the judge's own memory, which is sealed."""
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_POPULATE", 0)
        memory = mmap.mmap(held[0], call["bytes"], flags, mmap.PROT_READ)
        view = self.numpy.frombuffer(memory, self.numpy.uint8)
        return [
            view[at : at + size].view(dtype).reshape(shape)
            for dtype, shape, at, size in call["inputs"]
        ]

    def written(self, call: dict[str, Any], held: Sequence[int], made: Sequence[Any]) -> str:
        """What is wrong with the outputs, which are written where that is nothing."""
        wanted = call["outputs"]
        if len(made) != len(wanted):
            return f"returns {len(made)} outputs, the task has {len(wanted)}"
        for one, (dtype, shape, at, _) in zip(made, wanted, strict=True):
            array = self.numpy.asarray(self.plain(one))
            if str(array.dtype) != dtype or list(array.shape) != shape:
                return f"returns {array.dtype} {list(array.shape)}, the task has {dtype} {shape}"
            content: Any = self.numpy.ascontiguousarray(array).reshape(-1).view("u1")
            os.pwrite(held[1], content, at)
        return ""

    def plain(self, output: Any) -> Any:
        """As numpy has it."""
        return output


class Torch(Numpy):
    """Tensors on the processor."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__(asked)
        import torch

        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        self.torch = torch

    def inputs(self, call: dict[str, Any], held: Sequence[int]) -> list[Any]:
        """In the same read-only memory."""
        return [self.torch.from_numpy(one) for one in super().inputs(call, held)]

    def plain(self, output: Any) -> Any:
        """As numpy has it."""
        return output.detach().cpu().numpy()


class Cuda(Torch):
    """Tensors on a card, in the judge's device memory; where the driver refuses that, copied from
    and to its host memory, which is timed."""

    def __init__(self, asked: dict[str, Any]) -> None:
        super().__init__(asked)
        from gpulift.judge import cuda

        self.cuda = cuda
        self.arenas = cuda.opened(self.torch, asked["device"], asked["arena"])
        self.shared = bool(self.arenas)

    def inputs(self, call: dict[str, Any], held: Sequence[int]) -> list[Any]:
        """Views of the arena of inputs, or copies."""
        if not self.arenas:
            return [one.cuda() for one in super().inputs(call, held)]
        return self.cuda.views(self.torch, self.arenas[0], call["inputs"])

    def written(self, call: dict[str, Any], held: Sequence[int], made: Sequence[Any]) -> str:
        """Copies into the arena of outputs, and waits for the card."""
        if not self.arenas:
            return super().written(call, held, made)
        views = self.cuda.views(self.torch, self.arenas[1], call["outputs"])
        if [(one.dtype, one.shape) for one in made] != [(one.dtype, one.shape) for one in views]:
            return "returns other outputs than the task has"
        for one, view in zip(made, views, strict=True):
            view.copy_(one)
        self.torch.cuda.synchronize()
        return ""


def _arrays(asked: dict[str, Any]) -> Numpy:
    kinds: dict[str, type[Numpy]] = {"numpy": Numpy, "torch": Torch, "cuda": Cuda}
    return kinds[asked["arrays"]](asked)


def _told(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return f"{type(error).__name__}: {error}"
    return type(error).__name__


def _tell(link: socket.socket, kind: bytes, text: str) -> None:
    most = LETTERS if kind == PROBLEM else MOST_BYTES
    link.send(kind + text.encode("utf-8", "replace")[:most])


if __name__ == "__main__":
    main()
