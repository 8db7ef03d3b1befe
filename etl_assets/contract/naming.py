"""Names that Dagster refuses: with one of them, no pipeline of a project would load.

The rules are Dagster's, copied, since a contract knows nothing of it; a test compares the two.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Protocol

#: Names that Dagster keeps for itself, and those of assets that are there beside every pipeline's.
RESERVED = frozenset(
    (
        "context",
        "conf",
        "config",
        "meta",
        "arg_dict",
        "dict",
        "input_arg_dict",
        "output_arg_dict",
        "int",
        "str",
        "float",
    )
) | frozenset(("bool", "input", "output", "type", "outbox", *keyword.kwlist))
_GROUP = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*")
_OWNER = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}|team:.+")
#: What a key of partitions cannot hold: a range's dots, and characters that are not shown.
_NOT_IN_KEYS = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")


class Named(Protocol):
    @property
    def name(self) -> str: ...


def check_name(name: str) -> str:
    if name in RESERVED:
        raise ValueError(
            f"{name!r} is a name that Dagster or Python keeps for itself: choose another, such as {name}_table"
        )
    return name


def check_group(group: str) -> str:
    if not _GROUP.fullmatch(group):
        raise ValueError(
            f"{group!r} is no group of Dagster's: letters, digits and '_', and '/' between the parts of it"
        )
    return group


def check_owners(owners: tuple[str, ...]) -> tuple[str, ...]:
    for owner in owners:
        if not _OWNER.fullmatch(owner):
            raise ValueError(f"{owner!r} is no owner of Dagster's: an e-mail address, or 'team:' and a name")
    return owners


def unfit_for_key(name: str) -> bool:
    """Whether Dagster takes no partition key of this name."""
    return any(part in name for part in _NOT_IN_KEYS)


def check_together(pipelines: Iterable[Named]) -> None:
    """Raise ``ValueError`` where the assets of two pipelines would have one name."""
    names = {pipeline.name for pipeline in pipelines}
    for name in sorted(names):
        for made in (f"{name}_landing", f"{name}_extract"):
            if made in names:
                raise ValueError(
                    f"{made!r} is the name of a pipeline, and that of an asset of the pipeline {name!r}: rename one"
                )
