"""A small extract as one file: a tar archive in a zstd frame, and behind it the digest of that frame.

Belongs here: the format, from named contents to bytes and back. Does not belong here: which contents, and where they lie.
``tar --zstd -xf`` unpacks it, since the digest stands in a frame that zstd skips.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

#: What begins a frame that zstd skips, and how long ours is: a sha256.
_SKIPPED = b"\x50\x2a\x4d\x18" + (32).to_bytes(4, "little")
_TRAILER = len(_SKIPPED) + 32
_BLOCK = 512


def pack(contents: Mapping[str, bytes]) -> bytes:
    """Return the file that holds these contents, in their order; equal contents give equal bytes."""
    import tarfile

    import pyarrow as pa

    members = []
    for name, data in contents.items():
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), 0o444
        members += [member.tobuf(tarfile.USTAR_FORMAT), data, bytes(-len(data) % _BLOCK)]
    members.append(bytes(2 * _BLOCK))  # the end of an archive
    frame = pa.Codec("zstd").compress(b"".join(members), asbytes=True)
    return frame + _SKIPPED + hashlib.sha256(frame).digest()


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the contents by name. Raise ``ValueError`` when these are not exactly the bytes that were packed."""
    import pyarrow as pa

    frame, trailer = data[:-_TRAILER], data[-_TRAILER:]
    if trailer != _SKIPPED + hashlib.sha256(frame).digest():
        raise ValueError("the digest at its end is not that of its bytes")
    archive = pa.CompressedInputStream(pa.BufferReader(frame), "zstd").read()
    contents, at = {}, 0
    while any(header := archive[at : at + _BLOCK]):
        # A name takes 100 bytes of a header, and the size, in octal digits, 12 from the 124th on.
        name, size = header[:100].rstrip(b"\0").decode(), int(header[124:135], 8)
        at += _BLOCK
        contents[name] = archive[at : at + size]
        at += size + -size % _BLOCK
    return contents
