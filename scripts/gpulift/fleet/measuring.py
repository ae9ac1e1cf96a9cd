"""What is measured of a fleet: each node, then pairs of nodes in rounds, then groups."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpulift.fleet import kept, state
from gpulift.fleet.fetched import unpack
from gpulift.fleet.jobs import IN_OWN, IN_SHARED, Answer, Job, run_all, write_code
from gpulift.fleet.kept import RESULTS
from gpulift.fleet.logs import LOG_FILE, NO_ANSWER
from gpulift.fleet.rounds import groups_of, rounds_of_pairs
from gpulift.fleet.schedulers import Node, Scheduler
from gpulift.ground import programs
from gpulift.ground.errors import FAILED, INCONCLUSIVE, NOTHING_RAN, OK, GpuliftError

VERDICTS_FILE = "verdicts.txt"  # what qualify says
TOGETHER = "ceiling/collectives"
FETCH_S = 60.0
FETCH_BYTES = 1 << 28  # of a node's results, which are some megabytes
FETCH = 'cd "$0" && mkdir -p results && tar -cf - results && cd / && rm -rf "$0"'
MEASURED = "measured"
WORDS = {OK: "pass", FAILED: "fail", INCONCLUSIVE: "inconclusive", NOTHING_RAN: "nothing could run"}


class FleetRun:
    """A folder and the nodes that it is of, measured with options of `qualify`."""

    def __init__(
        self,
        scheduler: Scheduler,
        folder: Path,
        options: Sequence[str],
        limit_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._scheduler, self._folder = scheduler, folder
        self._options, self._limit_s, self._say = options, limit_s, say

    def measure(self, expected: Sequence[str], listed: Sequence[Node]) -> None:
        """All that the folder lacks. Raises GpuliftError when interrupted, or where the folder can
        no longer be written."""
        self._qualify(expected, {node.name: node for node in listed})
        rounds = rounds_of_pairs(expected)
        for number, pairs in enumerate(rounds, start=1):
            named = {"+".join(pair): pair for pair in pairs}
            self._together("pairs", f"round {number} of {len(rounds)}", named, least=2)
        groups = groups_of(expected)
        named_groups = {f"{group[0]}..{group[-1]}": group for group in groups}
        self._together("groups", "groups", named_groups, least=3)

    def _qualify(self, expected: Sequence[str], listed: dict[str, Node]) -> None:
        folders = {name: state.node_folder(self._folder, name) for name in expected}
        open_ones = {
            name: at for name, at in folders.items() if not state.is_qualified(self._folder, name)
        }
        unknown = f"not known to {self._scheduler.name} now"
        nodes = [listed.get(name, Node(name, lacking=unknown)) for name in open_ones]
        jobs = [
            self._job(node.name, open_ones[node.name], [node], self._asked(node), VERDICTS_FILE)
            for node in nodes
            if not node.lacking
        ]
        done = len(expected) - len(open_ones)
        self._say(
            f"{len(expected)} nodes: {done} qualified already, {len(jobs)} to qualify; what they"
            f" say meanwhile is in {self._folder}/nodes"
        )
        for node in nodes:
            if node.lacking:
                self._say(f"{node.name}: {NO_ANSWER}: {node.lacking}")
                state.add_no_answer(open_ones[node.name], node.lacking)
        self._run(jobs, lambda job: self._verdict(job.name))

    def _asked(self, node: Node) -> list[str]:
        """Of a node that its scheduler says has GPUs: all of them, or it fails."""
        gpus = 1 if node.partitioned else node.gpus
        expected = ["--expect-gpus", str(gpus)] if gpus else []
        return ["qualify", *expected, *self._options]

    def _verdict(self, name: str) -> str:
        """Of a node; or why it has none."""
        node = kept.kept_node(self._folder, name)
        return node.why or WORDS[node.code or OK]

    def _together(
        self, kind: str, title: str, wanted: Mapping[str, Sequence[str]], least: int
    ) -> None:
        """Those nodes of each that answered alone and can be reached now, where they are enough."""
        folders = {name: self._folder / kind / name for name in wanted}
        open_ones = {
            name: at for name, at in folders.items() if not state.is_measured(at, wanted[name])
        }
        listed = self._scheduler.nodes() if open_ones else []
        able = {node.name: node for node in listed if self._answers(node)}
        jobs = []
        for name, folder in open_ones.items():
            nodes = [able[one] for one in wanted[name] if one in able]
            names = [node.name for node in nodes]
            if len(nodes) >= least and not state.is_measured(folder, names):
                state.write_nodes(folder, names)
                asked = ("run", TOGETHER, "--ranks", "given")
                jobs.append(self._job(name, folder, nodes, asked))
        if jobs:
            self._say(f"{title}: {len(jobs)} to measure")
        self._run(jobs, lambda job: kept.meeting(job.folder).why or MEASURED)

    def _answers(self, node: Node) -> bool:
        code = kept.exit_code(state.node_folder(self._folder, node.name))
        return not node.lacking and code in (OK, FAILED, INCONCLUSIVE)

    def _job(
        self,
        name: str,
        folder: Path,
        nodes: Sequence[Node],
        arguments: Sequence[str],
        output: str = LOG_FILE,
    ) -> Job:
        called = [*self._scheduler.gpulift, *arguments]
        command = ["sh", "-c", IN_OWN, "sh", *called]
        if self._scheduler.shares_folder:
            out = ["--out", str(folder / RESULTS)]
            command = ["sh", "-c", IN_SHARED, str(folder), *called, *out]
        return Job(name, folder, nodes, self._scheduler.commands(nodes, command), output)

    def _run(self, jobs: Sequence[Job], told: Callable[[Job], str]) -> None:
        done = 0

        def ended(job: Job, answer: Answer) -> None:
            nonlocal done
            done += 1
            why = self._keep(job, answer)
            said = f"{NO_ANSWER}: {why}" if why else told(job)
            log = "" if said in (*WORDS.values(), MEASURED) else f"; see {job.folder / LOG_FILE}"
            self._say(f"{job.name}: {said}{log} ({done} of {len(jobs)})")

        run_all(jobs, self._scheduler.at_once, self._limit_s, ended)

    def _keep(self, job: Job, answer: Answer) -> str:
        """Its exit code, last of all; or why it has none, which is returned."""
        why = answer.why
        if answer.code is not None and not self._scheduler.shares_folder:
            why = self._fetched(job, answer.own)
        if answer.code is None or why:
            state.add_no_answer(job.folder, why)
        else:
            write_code(job, answer.code)
        return why

    def _fetched(self, job: Job, own: str) -> str:
        """Brings what the first node keeps there; why that is not possible."""
        if not own:
            return "its results did not come: it did not say where they are"
        (calling,) = self._scheduler.commands(job.nodes[:1], ["sh", "-c", FETCH, own])
        try:
            packed = programs.finished(calling, FETCH_S, most_bytes=FETCH_BYTES)
            if packed.returncode:
                return f"its results did not come: {programs.last_error(packed)}"
            unpack(packed.stdout, job.folder, FETCH_BYTES)
        except subprocess.TimeoutExpired:
            return f"its results have not come within {FETCH_S:.0f} s"
        except GpuliftError as error:
            return f"its results did not come: {error}"
        return ""


def expected_nodes(
    held: Sequence[str], listed: Sequence[Node], count: int | None
) -> tuple[str, ...]:
    """Those of earlier calls, and all others; or so many, those first that can run something now.
    Raises GpuliftError where there are fewer, or a name is none of a folder."""
    for node in listed:
        if node.name in ("", ".", "..") or "/" in node.name:
            raise GpuliftError(f"a node is called {node.name!r}, which no folder can be", FAILED)
    if count is None:
        return tuple(dict.fromkeys([*held, *(node.name for node in listed)]))
    able = sorted(listed, key=lambda node: bool(node.lacking))
    names = list(dict.fromkeys([*held, *(node.name for node in able)]))
    if len(names) < count:
        raise GpuliftError(f"--nodes {count}: there are {len(names)}")
    return tuple(names[: max(count, len(held))])
