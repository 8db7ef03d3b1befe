"""A manifest as text: sealed with a digest of its own, and read back only if no byte of it has changed.

Belongs here: how a manifest is written, sealed and checked. Does not belong here: where it lies.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from typing import Any

from etl_assets.model import ExtractColumn, Manifest, Part, Seen

#: The last field of a manifest's text is the digest of everything before it.
_SEAL = re.compile(rb', "sha256": "([0-9a-f]{64})"}\n')


def sealed(manifest: Manifest) -> bytes:
    """Return the text of a manifest, sealed with its digest."""
    columns, parts, seen = (
        [_fields(one) for one in many] for many in (manifest.columns, manifest.parts, manifest.seen)
    )
    described = json.dumps(_fields(manifest) | {"columns": columns, "parts": parts, "seen": seen}, ensure_ascii=False)
    body = described.removesuffix("}").encode()
    digest = hashlib.sha256(body).hexdigest()
    return body + f', "sha256": "{digest}"}}\n'.encode()


def _fields(record: Manifest | ExtractColumn | Part | Seen) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def unsealed(text: bytes) -> tuple[Manifest, str]:
    """Return the manifest of a text, and its seal. Raise ``ValueError`` when it is not exactly what was sealed."""
    start = text.rfind(b", ")
    seal = _SEAL.fullmatch(text, start) if start >= 0 else None
    if not seal or hashlib.sha256(text[:start]).hexdigest() != seal[1].decode():
        raise ValueError("its own digest is not that of its text")
    fields = json.loads(text)
    digest = fields.pop("sha256")
    columns = tuple(ExtractColumn(**c) for c in fields.pop("columns"))
    parts = tuple(Part(**p) for p in fields.pop("parts"))
    seen = tuple(Seen(**one) for one in fields.pop("seen"))
    return Manifest(**fields, columns=columns, parts=parts, seen=seen), digest
