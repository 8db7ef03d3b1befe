"""The tests mirror the rooms; ``faults`` and ``model`` hold the crash and the state-machine suites."""
