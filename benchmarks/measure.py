"""Measuring: every measured thing is a process of its own, so that its peak memory is its own.

The parent stays small on purpose (no pyarrow, no pandas): on Linux a child's ``ru_maxrss`` starts at what its parent
held when it forked.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds around the work (taken inside), of the whole process, its peak memory, and what it reports.

    ``facts`` have the processor time of the whole process (``cpu_whole``), which other processes disturb less.
    """

    seconds: float
    whole: float
    peak_mb: float
    facts: dict[str, Any] = field(default_factory=dict)


class TaskFailed(RuntimeError):
    """A measured process ended with an error, shown as it wrote it."""


def run_process(command: Sequence[str], environment: Mapping[str, str] | None = None, script: str = "") -> Measured:
    """Run a command to its end; the last line of its output, where it is JSON, holds ``seconds`` and other facts."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(script.encode())
    process.stdin.close()
    out = process.stdout.read().decode()
    err = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    whole, cpu = time.perf_counter() - began, usage.ru_utime + usage.ru_stime
    if process.returncode:
        raise TaskFailed(f"{' '.join(command)[:300]}\n{err[-3000:]}{out[-500:]}")
    lines = out.strip().splitlines()
    try:
        facts = json.loads(lines[-1]) if lines else {}
    except json.JSONDecodeError:
        facts = {}
    if not isinstance(facts, dict):
        facts = {}
    return Measured(
        facts.get("seconds", whole), whole, usage.ru_maxrss / 1024, {"out": lines, "cpu_whole": cpu, **facts}
    )


def run_task(name: str, module: str = "tasks", environment: Mapping[str, str] | None = None, **given: Any) -> Measured:
    """Run one function of ``tasks.py``, or of another module, in a process of its own."""
    return run_process([sys.executable, str(HERE / f"{module}.py"), name, json.dumps(given, default=str)], environment)


def interleaved(subjects: Mapping[str, Callable[[], Measured]], runs: int) -> dict[str, list[Measured]]:
    """Measure A B A B …: what disturbs the machine for a while disturbs all of them."""
    found: dict[str, list[Measured]] = {name: [] for name in subjects}
    for _ in range(runs):
        for name, subject in subjects.items():
            found[name].append(subject())
    return found


def median(runs: Sequence[Measured], fact: str = "seconds") -> float:
    """The median of a fact; ``seconds``, ``whole`` and ``peak_mb`` or a name of the task's own."""
    values = [getattr(r, fact) if fact in ("seconds", "whole", "peak_mb") else r.facts[fact] for r in runs]
    return float(statistics.median(values))
