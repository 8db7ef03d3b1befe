"""Landing: find deliveries, order them, and tell missing from arriving from unreachable. Nothing here knows what is in a file."""

from etl_assets.landing.landing import Landing, landing_segment, natural_order, settling

__all__ = ["Landing", "landing_segment", "natural_order", "settling"]
