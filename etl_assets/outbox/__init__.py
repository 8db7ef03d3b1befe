"""Messages out: at least once, each under its idempotency key, in the order of their topic."""

from etl_assets.outbox.deliver import Attempt, Patience, deliver
from etl_assets.outbox.opening import open_relay
from etl_assets.outbox.relay import Refused, Relay, Sent

__all__ = ["Attempt", "Patience", "Refused", "Relay", "Sent", "deliver", "open_relay"]
