"""pandas tables as exact, deduplicating parts of bytes; needs the extra [pandas]."""

from gymckpt.tables.codec import PartsCache, decode, encode, freeze
from gymckpt.tables.layout import CodecError, MalformedPartsError, UnsupportedStateError

__all__ = ["CodecError", "MalformedPartsError", "PartsCache", "UnsupportedStateError", "decode", "encode", "freeze"]
