"""``make demo``: real deliveries and their real corrections, through a real Dagster, in two or three minutes."""
