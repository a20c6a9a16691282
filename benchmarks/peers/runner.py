"""The peers of a workload take turns; each turn is written as soon as it is measured."""

from __future__ import annotations

import gc
import os
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from benchmarks.peers.figures import short
from benchmarks.peers.peer import Missing
from benchmarks.peers.results import Result, Results, Row
from benchmarks.peers.servers import Servers
from benchmarks.peers.workload import Scale, Workload

#: Seconds of looking at what other programs use of the machine.
_LOOK_SECONDS = 0.2


def run(
    workloads: Sequence[Workload],
    peers: Sequence[str],
    scale: Scale,
    results: Results,
    folder: Path,
    console: Console,
) -> None:
    """Measure what *results* does not have yet; *peers* are parts of names, by default all."""
    folder.mkdir(parents=True, exist_ok=True)
    for workload in workloads:
        console.rule(workload.title)
        # A workload finds nothing of the others.
        with (
            tempfile.TemporaryDirectory(prefix="peers-", dir=folder) as name,
            Servers(Path(name)) as servers,
        ):
            _Turns(workload, scale, results, servers, console).run(peers)


class _Turns:
    def __init__(
        self,
        workload: Workload,
        scale: Scale,
        results: Results,
        servers: Servers,
        console: Console,
    ) -> None:
        self._workload = workload
        self._scale = scale
        self._results = results
        self._servers = servers
        self._console = console

    def run(self, names: Sequence[str]) -> None:
        """Let the peers take turns in each case."""
        cases = self._workload.cases(self._scale)
        wanted = [
            peer
            for peer in self._workload.peers()
            if not names or any(name.lower() in peer.name.lower() for name in names)
        ]
        turns = [
            (case, peer, number)
            for case in cases
            for number in range(self._workload.rounds(case, self._scale))
            # Each round begins with another peer.
            for peer in wanted[number % max(len(wanted), 1) :] + wanted[: number % len(wanted)]
            if (self._workload.name, case, peer.name, number) not in self._results
        ]
        started = {peer.name for peer in wanted if self._start(peer, turns)}
        for at, (case, peer, number) in enumerate(turns):
            if peer.name in started:
                self._console.print(f"[dim]{at + 1} of {len(turns)}[/] {case}: {peer.name}")
                self._results.add(self._turn(peer, case, number))

    def _start(self, peer: Any, turns: Sequence[tuple[str, Any, int]]) -> bool:
        """Start a peer that has a turn; if it is missing, write so and return False."""
        of_peer = [turn for turn in turns if turn[1] is peer]
        if not of_peer:
            return False
        try:
            peer.start(self._servers)
        except Missing as error:
            self._console.print(f"[yellow]{peer.name} is missing:[/] {error}")
            self._results.add([self._row(peer, of_peer[0][0], 0, missing=str(error))])
            return False
        return True

    def _turn(self, peer: Any, case: str, number: int) -> list[Row]:
        gc.collect()
        # What other peers have left to the disk is not this one's work.
        os.sync()
        beside = psutil.cpu_percent(_LOOK_SECONDS)
        try:
            found = self._workload.measure(peer, case, self._scale, self._servers)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises; the others continue
            self._console.print(traceback.format_exc(), markup=False)
            text = str(error).strip().splitlines() or [""]
            failed = f"failed: {type(error).__name__}: {text[0][:160]}"
            return [self._row(peer, case, number, missing=failed, beside=beside)]
        for result in found:
            self._console.print(f"    {_shown(result)}", highlight=False)
        return [self._row(peer, case, number, beside=beside, result=each) for each in found]

    def _row(self, peer: Any, case: str, number: int, **fields: Any) -> Row:
        return Row(
            workload=self._workload.name,
            case=case,
            peer=peer.name,
            round=number,
            conditions=peer.conditions,
            **fields,
        )


def _shown(result: Result) -> str:
    parts = [result.measure]
    if result.rate is not None:
        parts.append(f"{short(result.rate)} a second")
    if result.p50 is not None:
        parts.append(
            f"p50 {short(result.p50)}, p99 {short(result.p99)}, worst {short(result.worst)} ms"
        )
    if result.cpu is not None:
        parts.append(f"{short(result.cpu)} % of a core")
    return ", ".join(parts)
