"""Messages out: at least once, each under its idempotency key, in the order of their topic."""

from etl_assets.outbox.deliver import Attempt, Patience, deliver
from etl_assets.outbox.relay import Refused, Relay, Sent, open_relay

__all__ = ["Attempt", "Patience", "Refused", "Relay", "Sent", "deliver", "open_relay"]
