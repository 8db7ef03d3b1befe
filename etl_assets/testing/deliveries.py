"""The deliveries of a test: where each lies below the landing, what partition it is for, and in which order they go."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etl_assets.contract import ChangeLogTable, PartitionedTable, WatermarkTable
from etl_assets.landing import Landing
from etl_assets.testing.workbench import Workbench, as_bytes

#: The patterns whose rows arrive as files.
Delivered = PartitionedTable | ChangeLogTable | WatermarkTable
#: Paths below the landing with what lies there: bytes, text or a file. Or a folder that is laid out as the landing.
Deliveries = Mapping[str, bytes | str | Path] | str | Path


@dataclass(frozen=True, slots=True)
class Placed:
    """One delivery: its path below the landing, its bytes, and what the landing makes of it."""

    path: str
    content: bytes
    scope: str
    name: str
    control: tuple[str, bytes] | None = None

    def put(self, bench: Workbench) -> Path:
        """Let it arrive, after the control file that counts its rows."""
        if self.control:
            bench.put(*self.control)
        return bench.put(self.path, self.content)


def placed(pipeline: Delivered, deliveries: Deliveries) -> list[Placed]:
    """The deliveries in order of partition and name. Of a folder those that are the pipeline's; a mapping has no others.

    Raises ``ValueError`` for a path that is no delivery of the pipeline, saying why.
    """
    folder = isinstance(deliveries, str | Path)
    files = (
        _files(Path(deliveries))
        if isinstance(deliveries, str | Path)
        else {k: as_bytes(v) for k, v in deliveries.items()}
    )
    with tempfile.TemporaryDirectory(prefix="etl-deliveries-") as root:
        bench = Workbench(Path(root))
        paths = {str(bench.put(path, content)): path for path, content in files.items()}
        arrivals = Landing(bench.settings.landing, pipeline).arrivals()
    found = []
    for arrival in arrivals:
        path = paths.pop(arrival.path)
        if arrival.arriving or not arrival.known:
            why = arrival.arriving or f"{arrival.scope!r} is not among the {pipeline.partitions.describe()}"
            raise ValueError(f"{path} is no delivery of {pipeline.name}: {why}")
        counts = f"{path}{pipeline.row_count_file}" if arrival.control else None
        if counts:
            paths.pop(f"{arrival.path}{pipeline.row_count_file}")
        control = (counts, files[counts]) if counts else None
        found.append(Placed(path, files[path], arrival.scope, arrival.name, control))
    if paths and not folder:
        raise ValueError(
            f"{', '.join(paths.values())}: no delivery of {pipeline.name}, by its pattern {pipeline.landing!r}"
        )
    if not found:
        raise ValueError(f"no deliveries of {pipeline.name}: nothing fits its pattern {pipeline.landing!r}")
    return found


def placed_among(pipelines: Sequence[Delivered], deliveries: Deliveries) -> list[tuple[Delivered, list[Placed]]]:
    """The deliveries of several pipelines, each with its own. Raises ``ValueError`` for a path that is no delivery of any."""
    with tempfile.TemporaryDirectory(prefix="etl-deliveries-") as root:
        folder = Path(deliveries) if isinstance(deliveries, str | Path) else Path(root)
        for path, content in {} if isinstance(deliveries, str | Path) else deliveries.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(as_bytes(content))
        found = [(pipeline, placed(pipeline, folder)) for pipeline in pipelines]
    if not isinstance(deliveries, str | Path):
        known = {p.path for _, each in found for p in each} | {p.control[0] for _, e in found for p in e if p.control}
        foreign = sorted(deliveries.keys() - known)
        if foreign:
            raise ValueError(f"{', '.join(foreign)}: no delivery of {', '.join(p.name for p in pipelines)}")
    return found


def _files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
