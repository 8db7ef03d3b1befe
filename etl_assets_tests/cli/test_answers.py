"""Tables that another program reads, and long ones."""

import pytest

from etl_assets.answers import print_table


def test_a_table_in_a_pipe_is_aligned_and_folds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "reason"), [("größe\x1b[0m", "one\ntwo"), ("x" * 300, "three")])
    name, gap = "größe\\x1b[0m", " " * (300 - 12)
    assert capsys.readouterr().out.splitlines() == [
        f"name{' ' * 296}  reason",
        f"{name}{gap}  one",
        f"{' ' * 300}  two",
        f"{'x' * 300}  three",
    ]
