"""What a decision to restate outlives: which deliveries of a partition stay superseded by it, by any logic and in any run.

Belongs here: the rule, as a function of what the ledger has of a partition. Publishing and showing states ask the same one.
"""

from __future__ import annotations

from collections.abc import Sequence

from etl_assets.model import LedgerEntry


def restated_over(entries: Sequence[LedgerEntry], name: str, revision: int, sha256: str | None) -> LedgerEntry | None:
    """Return the restatement that a delivery was put aside by; None where it was not.

    ``entries`` are all batches of the partition in commit order. The last restatement puts aside every delivery that was
    committed before it and not since. Until a newer delivery is committed, it also puts aside the bytes (``sha256``) of such
    a one that come back under its name.
    """
    decision = next((e for e in reversed(entries) if e.operation == "restate"), None)
    if decision is None or (decision.delivery, decision.revision) == (name, revision):
        return None
    own = [e.id for e in entries if (e.delivery, e.revision) == (name, revision)]
    if own:
        return decision if own[-1] < decision.id else None
    stands = (decision.delivery, decision.revision)
    if any(e.id > decision.id and (e.delivery, e.revision) != stands for e in entries):
        return None
    if name == decision.delivery and sha256 == decision.input_sha256:
        return None
    before = (e for e in entries if e.id < decision.id and e.delivery == name)
    return decision if sha256 is not None and any(e.input_sha256 == sha256 for e in before) else None
