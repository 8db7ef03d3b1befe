"""What travels between the rooms: frozen dataclasses, no behaviour beyond naming things.

Belongs here: facts that two rooms share. Does not belong here: how they come about.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal
from urllib.parse import quote

from etl_assets.errors import may_pass_later
from etl_assets.naming import is_later, shown


@dataclass(frozen=True, slots=True)
class Arrival:
    """A file in landing, as listed: not read yet, so its bytes (and so its revision) are not known.

    ``stamp`` changes whenever the file is written (size, times, inode; size and ETag on object stores). ``order``
    compares as text in the natural order of names. ``arriving`` says why it must not be read yet.
    """

    scope: str
    name: str
    path: str
    size: int
    stamp: str
    order: str
    modified: float | None = None
    known: bool = True
    arriving: str | None = None
    control: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """An upstream partition as a derived one saw it: the last batch that changed it. ``scope`` is empty for a whole table."""

    pipeline: str
    scope: str
    batch: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """The bytes of an arrival, copied out of landing; ``path`` is the private copy.

    ``declared_rows`` is the text of its control file, where the contract has one. Of a derived table ``path`` lists the
    upstream batches ``seen``, and ``computed`` is a file of the rows that the query made of them.
    """

    path: str
    sha256: str
    size: int
    declared_rows: str | None = None
    seen: tuple[Seen, ...] = ()
    computed: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One arrival with its identity: pipeline / scope / name # revision.

    ``declared`` is what its control file said when read; ``read_at`` is when it was first read, in UTC.
    """

    pipeline: str
    scope: str
    name: str
    revision: int
    order: str
    sha256: str
    size: int
    stamp: str
    declared: str | None = None
    read_at: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.pipeline}/{shown(self.scope)}/{shown(self.name)}#{self.revision}"

    @property
    def place(self) -> tuple[str, int]:
        """Where it stands among the deliveries of its scope: the largest is the newest."""
        return (self.order, self.revision)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a delivery was refused, how often, and under which contract and logic (``code``)."""

    kind: str
    reason: str
    code: str
    attempts: int

    def needs_attention(self, attempts: int) -> bool:
        """Whether nobody asks for the delivery by itself any more: of ``attempts`` where the table has a say, else of one."""
        return self.attempts >= (attempts if may_pass_later(self.kind) else 1)


def refusal_code(code: str, declared: str | None) -> str:
    """Return under what a delivery is refused: contract and logic, and the text of its control file where it has one."""
    return code if declared is None else f"{code} declared {declared}"


@dataclass(frozen=True, slots=True)
class RecordedDelivery:
    """A delivery that the warehouse has met, with its refusal if it was refused last.

    ``proved_code`` is another contract than its batch's under which it was found to give the same rows.
    """

    delivery: Delivery
    refusal: Refusal | None = None
    proved_code: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A run's permission to write to a scope: valid until a newer generation is issued."""

    pipeline: str
    scope: str
    run: str
    generation: int


@dataclass(frozen=True, slots=True)
class ExtractColumn:
    """A column of an extract: one of the contract, or one that the delivery added (as text).

    ``resolution`` is a timestamp's, and so the width of its text; Parquet has no seconds and cannot keep it.
    """

    name: str
    type: str
    added: bool = False
    resolution: Literal["s", "ms", "us"] | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Events of a log's delivery that are a batch of their own: positions ``(lower, upper]``, in a file of their own."""

    lower: int
    upper: int
    source_rows: int
    rows: int
    stale: int
    digest: str
    candidate_sha256: str
    events_sha256: str


#: Columns of a candidate row beside the contract's: the version that stands, whether it ends the row, and where it was said.
VERSION, DELETED, POSITION = "_version", "_deleted", "_position"

CandidateFormat = Literal["arrow", "parquet"]
#: How an extract is written. One of another format is not found; it is frozen again from the delivery.
EXTRACT_FORMAT = 2


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an extract holds; stored beside it, with no clock in it: the same input and code give the same bytes.

    ``lower`` and ``upper`` bound the positions ``(lower, upper]`` of a change log's events, and ``stale`` counts those that
    came after a newer version within the delivery. A log's delivery of more than one batch has ``parts``; the manifest
    of one of them has its number, and whether the delivery ``continues`` after it. ``seen`` are the upstream batches that a
    derived partition was computed of.
    """

    pipeline: str
    scope: str
    delivery: str
    revision: int
    order: str
    input_sha256: str
    input_size: int
    code: str
    transform_version: int
    digest: str
    columns: tuple[ExtractColumn, ...]
    source_rows: int
    rejected_rows: int
    rows: int
    candidate_sha256: str
    rejects_sha256: str | None
    lower: int | None = None
    upper: int | None = None
    stale: int = 0
    parts: tuple[Part, ...] = ()
    part: int | None = None
    continues: bool = False
    seen: tuple[Seen, ...] = ()
    duplicates: int = 0
    candidate_format: CandidateFormat = "parquet"
    events_sha256: str | None = None
    format: int = EXTRACT_FORMAT

    @property
    def batch(self) -> str:
        return batch_id(*self.identity, positions=self.positions)

    @property
    def identity(self) -> tuple[str, str, str, int, int]:
        """Which delivery this is, by which logic."""
        return (self.pipeline, self.scope, self.delivery, self.revision, self.transform_version)

    @property
    def positions(self) -> tuple[int, int] | None:
        """The bounds of a part; None where the delivery is one batch."""
        if self.part is None or self.lower is None or self.upper is None:
            return None
        return self.lower, self.upper


@dataclass(frozen=True, slots=True)
class Extract:
    """A frozen extract: its folder, its manifest, and the digest of the manifest's text."""

    folder: str
    manifest: Manifest
    sha256: str

    @property
    def batches(self) -> tuple[Extract, ...]:
        """What is published in a transaction of its own: the whole extract, or each of its parts as an extract."""
        whole = self.manifest
        parts = (
            replace(whole, **asdict(part), parts=(), part=number, continues=number < len(whole.parts))
            for number, part in enumerate(whole.parts, start=1)
        )
        return tuple(replace(self, manifest=manifest) for manifest in parts) or (self,)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a batch did, in rows.

    ``source`` records were read, ``rejected`` of them quarantined. Of the candidate rows, ``inserted`` are new,
    ``updated`` had other values, ``unchanged`` had the same, ``moved`` were taken over from another partition, and
    ``aside`` are kept aside because a later claim of another partition stands. ``deleted`` rows left this
    partition; ``restored`` rows of other partitions came back because this one dropped their key. ``stale`` events came
    after a newer version of their row. ``skipped`` rows of a snapshot are not beyond the watermark; ``ties`` of them, or of
    the rows taken, are exactly at it. ``duplicates`` rows gave way to a newer row of the same key in their delivery.
    ``missed`` of the skipped rows are not in the table, or only in an older version: the bounds left them out.
    """

    source: int = 0
    rejected: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    moved: int = 0
    aside: int = 0
    restored: int = 0
    stale: int = 0
    skipped: int = 0
    ties: int = 0
    duplicates: int = 0
    missed: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def plus(self, **more: int) -> Counts:
        """These counts and some more."""
        return replace(self, **{name: getattr(self, name) + number for name, number in more.items()})


@dataclass(frozen=True, slots=True)
class Change:
    """One updated row: its key, and old and new value of each column that changed."""

    key: tuple[tuple[str, Any], ...]
    values: tuple[tuple[str, Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What an update changed: rows changed per column, a sample of rows, and rows taken from or given back to others."""

    columns: tuple[tuple[str, int], ...] = ()
    sample: tuple[Change, ...] = ()
    touched: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Restatement:
    """Publishing on purpose what order would refuse. The ledger keeps the reason.

    ``operation`` names the decision to restate, which outlives the run that carries it out: a run that is executed
    again has a claim of its own, and the same operation, so that it answers what the operation has done. With
    ``skip_gap`` it gives up the positions before a log's delivery that are missing, and leaves the table as it is.
    """

    reason: str
    operation: str
    skip_gap: bool = False


class Placed:
    """What has a place among the deliveries of its scope."""

    __slots__ = ()
    delivery: str
    revision: int
    order: str

    @property
    def place(self) -> tuple[str, int]:
        return (self.order, self.revision)

    def is_newer_than(self, name: str, order: str, revision: int) -> bool:
        """Return whether its delivery is known to be newer than another one of its scope, by name or as a revision."""
        return self.revision > revision if self.delivery == name else is_later(self.order, order) is True


@dataclass(frozen=True, slots=True)
class Batch(Placed):
    """One entry of the ledger. ``lower`` and ``upper`` are the positions that a change log's batch consumed.

    ``operation`` is ``amend`` where a restated snapshot left the other keys of its table alone.
    ``shard`` is the log's whose positions they are. A delivery that ``continues`` is committed with a later batch only.
    ``manifest`` is the digest of the extract's manifest; a batch of an older release has none.
    ``events_sha256`` digests what the events of a log's batch say.
    """

    id: int
    batch: str
    pipeline: str
    scope: str
    delivery: str
    revision: int
    order: str
    transform_version: int
    ordinal: int
    operation: Literal["replace", "restate", "amend", "consume", "skip", "merge"]
    reason: str | None
    operation_id: str | None
    digest: str
    input_sha256: str
    code: str
    generation: int
    run: str
    rows: int
    lower: int | None
    upper: int | None
    counts: Counts
    supersedes: str | None
    committed_at: str
    shard: str = ""
    continues: bool = False
    manifest: str | None = None
    events_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry(Placed):
    """What tells the state of a delivery of a batch: a tenth of what the ledger has of it, for those who ask of every one.

    ``current`` says that the scope's rows stand for it.
    """

    id: int
    batch: str
    scope: str
    delivery: str
    revision: int
    order: str
    transform_version: int
    operation: str
    reason: str | None
    digest: str
    input_sha256: str
    code: str
    upper: int | None
    committed_at: str
    continues: bool
    current: bool
    missed: int


@dataclass(frozen=True, slots=True)
class Consumed:
    """What the ledger has of one log around a delivery.

    ``position`` is None before the first batch. ``begun`` is the batch that the log began again with, by a person's decision.
    ``own`` are the delivery's batches since, and ``former`` those before it; ``beyond`` are all batches since that go beyond
    where the delivery begins.
    """

    position: int | None
    begun: Batch | None
    own: tuple[Batch, ...]
    former: tuple[Batch, ...]
    beyond: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What publish answers. ``superseded_by`` is set when the batch is committed but no longer the current one.

    ``long_log`` is the size of a write-ahead log that is larger than the warehouse after the commit.
    """

    status: Literal["committed", "already committed"]
    batch: Batch
    changes: Changes = field(default_factory=Changes)
    superseded_by: str | None = None
    locked_seconds: float = 0.0
    long_log: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the outbox. ``payload`` is the document that is sent, fixed when it was written, and ``key`` its id.

    ``notification`` says what kind of message it is (``pipeline.name``), ``subject`` what it is about, ``batch`` which
    commit it is of, where it is of one. ``waiting`` ones are sent in the order of ``id`` within their topic, not before
    ``next_attempt_at``; ``parked`` ones wait for a person.
    """

    id: int
    topic: str
    key: str
    notification: str
    subject: str
    payload: str
    batch: str | None
    created_at: str
    status: Literal["waiting", "sent", "parked", "discarded"]
    attempts: int
    next_attempt_at: str | None
    last_error: str | None
    settled_at: str | None


@dataclass(frozen=True, slots=True)
class RunFailure:
    """A run that failed, as it is told: of which job, assets and partitions, and why."""

    run: str
    job: str
    assets: tuple[str, ...]
    partitions: str | None
    reason: str


_SAFE = "".join(chr(c) for c in range(33, 127) if chr(c) not in "/#@+%") + " "


def batch_id(
    pipeline: str,
    scope: str,
    name: str,
    revision: int,
    transform_version: int,
    ordinal: int = 0,
    positions: tuple[int, int] | None = None,
) -> str:
    """``pipeline/scope/name#revision@transform_version``, ``+ordinal`` for a restatement, ``:first..last`` for a part.

    A log's delivery of several batches has one for each of its parts, by the ``positions`` ``(lower, upper]``: first is
    ``lower + 1``. The parts of an id are escaped where they hold one of the separators, so that two batches never share
    an id; behind the last ``#`` there are numbers only.
    """
    parts = f"{quote(pipeline, safe=_SAFE)}/{quote(scope, safe=_SAFE)}/{quote(name, safe=_SAFE + '/')}"
    part = f":{positions[0] + 1}..{positions[1]}" if positions else ""
    return f"{parts}#{revision}@{transform_version}" + (f"+{ordinal}" if ordinal else "") + part
