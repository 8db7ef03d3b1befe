"""A manifest as text: sealed with a digest of its own, and read back only if no byte of it has changed.

Belongs here: how a manifest is written, sealed and checked. Does not belong here: where it lies.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re

from etl_assets.model import ExtractColumn, Manifest, Part, Seen

#: The last field of a manifest's text is the digest of everything before it.
_SEAL = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n}\n')


def sealed(manifest: Manifest) -> bytes:
    """Return the text of a manifest, sealed with its digest."""
    described = json.dumps(dataclasses.asdict(manifest), indent=1, ensure_ascii=False)
    body = described.removesuffix("\n}").encode()
    digest = hashlib.sha256(body).hexdigest()
    return body + f',\n "sha256": "{digest}"\n}}\n'.encode()


def unsealed(text: bytes) -> tuple[Manifest, str]:
    """Return the manifest of a text, and its seal. Raise ``ValueError`` when it is not exactly what was sealed."""
    start = text.rfind(b",\n")
    seal = _SEAL.fullmatch(text, start) if start >= 0 else None
    if not seal or hashlib.sha256(text[:start]).hexdigest() != seal[1].decode():
        raise ValueError("its own digest is not that of its text")
    fields = json.loads(text)
    digest = fields.pop("sha256")
    columns = tuple(ExtractColumn(**c) for c in fields.pop("columns"))
    parts = tuple(Part(**p) for p in fields.pop("parts"))
    seen = tuple(Seen(**one) for one in fields.pop("seen"))
    return Manifest(**fields, columns=columns, parts=parts, seen=seen), digest
