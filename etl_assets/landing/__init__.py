"""Landing: find deliveries, order them, and tell missing from arriving from unreachable.

Belongs here: path patterns, listing, copying bytes out while they hold still. Does not
belong here: what is in a file. Paths are ``universal-pathlib`` paths, so a folder and a bucket are read alike.
"""

from etl_assets.landing.landing import Landing, misfitting, settling
from etl_assets.landing.names import landing_segment

__all__ = ["Landing", "landing_segment", "misfitting", "settling"]
