"""Small grey images as PNG, written by hand: what the report embeds, with no imaging library."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from ..core.errors import InvalidInput

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CLEAR = 1  # the grey level used for transparent; ink of this level is drawn one level darker


def png(levels: np.ndarray) -> bytes:
    """A picture [height, width] of grey levels 0 (black) to 1 (white); NaN is see-through."""
    if levels.ndim != 2 or 0 in levels.shape:
        raise InvalidInput(f"a picture of shape {levels.shape}; give [height, width]")
    clear = np.isnan(levels)
    grey = np.rint(np.where(clear, 0.0, levels) * 255).astype(np.uint8)
    rows = np.where(clear, _CLEAR, np.where(grey == _CLEAR, _CLEAR - 1, grey)).astype(np.uint8)
    height, width = rows.shape
    body = b"".join(b"\x00" + row.tobytes() for row in rows)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))]
    parts += [(b"tRNS", struct.pack(">H", _CLEAR))] if clear.any() else []
    parts += [(b"IDAT", zlib.compress(body, 9)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def as_uri(levels: np.ndarray) -> str:
    """The picture as a data: URI."""
    return "data:image/png;base64," + base64.b64encode(png(levels)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
