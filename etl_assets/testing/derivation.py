"""The proof for a derived table: whenever it is computed while its upstream is loaded, it ends alike."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from etl_assets.contract import DerivedTable, PartitionedTable
from etl_assets.testing.contents import ROWS, Contents, contents
from etl_assets.testing.deliveries import Delivered, Deliveries, Placed, placed_among
from etl_assets.testing.workbench import Workbench

#: How often it is computed in between, by chance.
OFTEN = 0.4


@dataclass(frozen=True, slots=True)
class Step:
    """One delivery arrives and is loaded; then perhaps what is stale is computed."""

    pipeline: Delivered
    delivery: Placed
    computed: bool = False

    def __str__(self) -> str:
        return f"{self.delivery.path}{', computed' if self.computed else ''}"


def assert_derived_alike(
    derived: DerivedTable, upstream: Sequence[Delivered], deliveries: Deliveries, ways: int, seed: int
) -> None:
    """Load the upstream in order and compute once; then in other orders, and compute in between."""
    arrived = placed_among(upstream, deliveries)
    plain = [Step(pipeline, delivery) for pipeline, found in arrived for delivery in found]
    with tempfile.TemporaryDirectory(prefix="etl-derived-") as root:
        wanted = _end(derived, Path(root) / "plain", plain)
        for number, steps in enumerate(_other_ways(arrived, Random(seed), ways)):
            found = _end(derived, Path(root) / str(number), steps)
            differs = wanted.differences(found, (ROWS,), mine="computed once", theirs="this way")
            if differs:
                raise _failure(
                    derived, "ends otherwise than when it is computed once, of all of its upstream:", differs, steps
                )


def _other_ways(arrived: Sequence[tuple[Delivered, list[Placed]]], random: Random, count: int) -> Iterator[list[Step]]:
    """The tables' deliveries mixed; those of a partitioned one in any order, of others in their own."""
    for _ in range(count):
        left = [(p, random.sample(d, len(d)) if isinstance(p, PartitionedTable) else list(d)) for p, d in arrived]
        steps: list[Step] = []
        while left := [(pipeline, found) for pipeline, found in left if found]:
            pipeline, found = random.choice(left)
            steps.append(Step(pipeline, found.pop(0), computed=random.random() < OFTEN))
        yield steps


def _end(derived: DerivedTable, root: Path, steps: Sequence[Step]) -> Contents:
    """What the table holds when nothing is stale any more. Raises ``AssertionError`` where that does not come about."""
    bench = Workbench(root)
    for step in steps:
        step.delivery.put(bench)
        bench.load(
            step.pipeline, step.delivery.scope, delivery=step.delivery.name if step.pipeline.newest_counts else None
        )
        if step.computed:
            _compute(derived, bench, steps)
    _compute(derived, bench, steps)
    left = bench.load(derived)
    if left:
        raise _failure(derived, "is stale again as soon as it is computed:", "\n".join(o.message for o in left), steps)
    differences = bench.differences(derived)
    if differences:
        raise _failure(derived, "the ledger does not say what the table holds:", "\n".join(differences), steps)
    return contents(bench, derived)


def _compute(derived: DerivedTable, bench: Workbench, steps: Sequence[Step]) -> None:
    refused = [f"{o.scope}: {o.message}" for o in bench.load(derived) if o.error]
    if refused:
        raise _failure(derived, "some partitions cannot be computed:", "\n".join(refused), steps)


def _failure(derived: DerivedTable, what: str, details: str, steps: Sequence[Step]) -> AssertionError:
    order = "\n  then ".join(map(str, steps))
    return AssertionError(f"{derived.name} {what}\n{details}\nupstream as it arrived:\n  {order}")
