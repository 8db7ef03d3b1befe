"""What this project loads: one module a pipeline, its contract and, where it needs one, its transform."""
