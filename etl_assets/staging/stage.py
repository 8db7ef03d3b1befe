"""Delivery to extract: let the load pattern write its candidate rows, then freeze them with the input and a manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from etl_assets.contract import ChangeLogTable, DerivedTable, Pipeline
from etl_assets.model import Delivery, Extract, Fetched, Manifest
from etl_assets.staging.candidate import Content
from etl_assets.staging.computed import stage_computed
from etl_assets.staging.extract import INPUT, REJECTS, StagedFolder, candidate_format, candidate_name
from etl_assets.staging.logs import stage_events
from etl_assets.staging.rows import stage_rows


def stage(
    contract: Pipeline,
    delivery: Delivery,
    fetched: Fetched,
    shown: str,
    staged: StagedFolder,
    work: Path,
    cuts: Sequence[int] = (),
    after: int | None = None,
) -> Extract:
    """Freeze a delivery whose bytes lie at ``fetched.path`` (a file in ``work``); ``shown`` names it in messages.

    ``cuts`` are the positions up to which batches of this very delivery of a log are committed: it is cut there again. Of its
    events only those beyond the position ``after`` are taken.

    Raises a :class:`~etl_assets.errors.DeliveryRefused` that names file, line and column, or
    :class:`~etl_assets.errors.StagingFailed`. Nothing is left behind unless the whole extract is frozen.
    """
    if isinstance(contract, ChangeLogTable):
        content = stage_events(contract, delivery, fetched, shown, work, cuts, after)
    elif isinstance(contract, DerivedTable):
        content = stage_computed(contract, fetched, shown, work)
    else:
        content = stage_rows(contract, delivery, fetched, shown, work)
    if Path(fetched.path) != work / INPUT:
        Path(fetched.path).rename(work / INPUT)
    manifest = _manifest(contract, delivery, fetched, content, work)
    return staged.freeze(work, manifest, staged.folder(delivery, contract.code, contract.transform_version))


def _manifest(contract: Pipeline, delivery: Delivery, fetched: Fetched, content: Content, work: Path) -> Manifest:
    form = candidate_format(fetched.size)
    return Manifest(
        pipeline=delivery.pipeline,
        scope=delivery.scope,
        delivery=delivery.name,
        revision=delivery.revision,
        order=delivery.order,
        input_sha256=delivery.sha256,
        input_size=delivery.size,
        code=contract.code,
        transform_version=contract.transform_version,
        digest=content.digest,
        columns=content.columns,
        source_rows=content.source_rows,
        rejected_rows=content.rejected_rows,
        rows=content.rows,
        candidate_sha256=_file_sha256(work / candidate_name(form)),
        rejects_sha256=_file_sha256(work / REJECTS) if content.rejected_rows else None,
        lower=content.lower,
        upper=content.upper,
        stale=content.stale,
        parts=tuple(
            replace(part, candidate_sha256=_file_sha256(work / candidate_name(form, number)))
            for number, part in enumerate(content.parts, start=1)
        ),
        seen=fetched.seen,
        duplicates=content.duplicates,
        candidate_format=form,
        events_sha256=content.events_sha256,
    )


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
