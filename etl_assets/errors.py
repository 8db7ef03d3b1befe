"""Every error that a user can meet, as a named class whose message says what, where, and what to do next.

Belongs here: the classes and what distinguishes them (whose fault, may it be asked again). Does not belong here:
the wording of one case, which stands where the case is found.

Four families, because four different people act on them:

- :class:`DeliveryRefused`: the delivery is at fault; it is remembered and shown until a new one arrives.
- :class:`DeliveryAbsent`: there is nothing to read, or not yet; the next tick asks again.
- :class:`PublishRefused`: the data may be fine, but its turn, its writer or its identity is not.
- :class:`OperationalError`: landing, disk, database or contract; a person or a retry mends it.
"""

from __future__ import annotations

from typing import ClassVar


class EtlError(Exception):
    """Base of all errors of this project. ``str(error)`` is meant for a person."""

    exit_code = 1
    #: Whether the same bytes under the same contract may be taken another time, because the table has a say in it.
    may_pass_later: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """The class name: stable, for machines that read ``--json`` or Dagster metadata."""
        return type(self).__name__


# --------------------------------------------------------------------------- the delivery is at fault
class DeliveryRefused(EtlError):
    """The delivery cannot become a partition; the partition keeps its rows."""


class BrokenDelivery(DeliveryRefused):
    """Unreadable as the contract's format: zero bytes, wrong encoding, bad quoting, truncated archive."""


class ZeroBytes(BrokenDelivery):
    """A file of zero bytes is an interrupted transfer, not an empty partition: that one has a header."""


class Undecodable(BrokenDelivery):
    """Bytes that are not text in the declared encoding."""


class BadQuoting(BrokenDelivery):
    """An unterminated quote, or text after a closing quote."""


class RaggedRow(BrokenDelivery):
    """A record with more or fewer fields than the header."""


class BadHeader(DeliveryRefused):
    """Blank, duplicate, missing, unexpected or reserved column names."""


class InvalidRows(DeliveryRefused):
    """More rows fail the contract than it allows to be quarantined."""


class ForeignRows(DeliveryRefused):
    """Rows that belong to another partition."""


class DuplicateKey(DeliveryRefused):
    """Two rows of one delivery with the same key, of which neither is newer by the contract."""


class ShrunkDelivery(DeliveryRefused):
    """Fewer rows than declared, than the minimum, or than the shrink limit allows: not the complete contents."""

    may_pass_later = True


class EmptyDelivery(DeliveryRefused):
    """A delivery without rows for a table that has some, where the contract says that this is an accident."""

    may_pass_later = True


class BadEvent(DeliveryRefused):
    """A line of a change log that is no event: not JSON, without position, operation or row."""


class BadPositions(DeliveryRefused):
    """Positions of a change log that are not positive, repeat, or leave a gap within a delivery."""


class VersionConflict(DeliveryRefused):
    """Two states of one row with the same version and different values: which one holds cannot be told."""

    may_pass_later = True


class OutOfBounds(DeliveryRefused):
    """A snapshot whose rows all lie outside of the contract's bounds, though the table lacks some of them."""


class TransformFailed(DeliveryRefused):
    """The pipeline's transform raised, or returned something that the contract does not allow."""


class RewrittenDelivery(DeliveryRefused):
    """The same name with other bytes, where the contract says that names are never used again."""


class UndecidedNames(DeliveryRefused):
    """Names of deliveries that do not tell which of them is the newest one."""


class UnrelatedDeliveries(DeliveryRefused):
    """Deliveries of one partition that came together and share no key: parts of a whole, not corrections of each other."""


class RewrittenLog(DeliveryRefused):
    """Events at positions of a log that are committed, which differ from those or cannot be compared with them."""


# --------------------------------------------------------------------------- nothing to read (yet)
class DeliveryAbsent(EtlError):
    """There is no delivery to read; not an empty one."""


class MissingDelivery(DeliveryAbsent):
    """No file matches the landing pattern of this partition."""


class UnreadableDelivery(DeliveryAbsent):
    """The file is there and cannot be read: its permissions, or the disk under it; other deliveries can."""


class StillArriving(DeliveryAbsent):
    """The file is being written: its name says so, or its size or time changed while it was read."""


# --------------------------------------------------------------------------- the publish is refused
class PublishRefused(EtlError):
    """The transaction was rolled back: nothing changed."""

    may_pass_later = True


class StaleWriter(PublishRefused):
    """A newer run has claimed the scope; this one may not write to it any more."""


class BatchIdentityConflict(PublishRefused):
    """The ledger has this batch with another digest: the bytes, or the logic, changed under an old label."""

    may_pass_later = False


class Superseded(PublishRefused):
    """A newer delivery, or newer logic, is committed for the scope."""


class UnexpectedCursor(PublishRefused):
    """A change log's delivery does not begin where the committed position ends: a gap, or an overlap."""


class UpstreamMoved(PublishRefused):
    """What a derived partition was computed of has a successor by now: it is computed again."""


class MovedKeys(PublishRefused):
    """Another partition holds the same key, and the contract gives no order, or refuses moves."""


class BadMessage(PublishRefused):
    """Rows of a notification that are no messages, or that its query does not come to an end with."""


class LedgerMismatch(PublishRefused):
    """The rows of a partition are not those that the ledger committed: written around, or restored apart."""


# --------------------------------------------------------------------------- operations
class OperationalError(EtlError):
    """Nothing is wrong with the data."""

    exit_code = 2


class UnclearDecision(OperationalError):
    """A decision about a log that does not say which delivery it is about, or that is about no log."""


class ContractError(OperationalError):
    """A pipeline's contract does not hold together; found when it is loaded."""


class BadNotification(ContractError):
    """A notification whose query can't be run on any partition; the publish was rolled back."""


class UnknownPipeline(OperationalError):
    """No pipeline of that name, or none at the given place."""


class UnknownScope(OperationalError):
    """A partition key that the contract's partitions do not contain."""


class LandingUnreachable(OperationalError):
    """The landing place cannot be listed or read; nothing can be said about deliveries."""


class StagingFailed(OperationalError):
    """The staged folder cannot be written (disk full, permissions)."""


class ExtractDamaged(OperationalError):
    """A frozen extract no longer has the bytes that its manifest names."""


class WarehouseError(OperationalError):
    """The database reported an error (disk full, I/O, corrupt file); the transaction was rolled back."""


class LedgerTooNew(OperationalError):
    """The warehouse was written by a newer release of this project."""


class SinkBusy(OperationalError):
    """Another writer held the warehouse longer than the busy timeout. The only error worth an automatic retry."""


class RelayUnavailable(OperationalError):
    """No relay is set, or none for such a URL, or its extra is not installed: messages wait."""


class RelayAtWork(OperationalError):
    """Another process relays the messages of this warehouse; two would send them out of order."""


class UnknownMessage(OperationalError):
    """No message that is parked or waits has that key."""


def may_pass_later(kind: str) -> bool:
    """Whether a refusal of this kind may pass another time; True of a kind that another release has named."""
    found = globals().get(kind)
    return found.may_pass_later if isinstance(found, type) and issubclass(found, EtlError) else True
