"""``make demo``: real deliveries and their real corrections, through a real Dagster, in about two minutes."""
