"""A table from 16-byte keys to small whole numbers, for millions of them in little memory.

A Python dictionary takes some 200 bytes an entry; this takes about 30.  Entries lie end to end in 65,536 byte strings,
chosen by the first two bytes of the key, and are found there by `bytearray.find`, which runs in C; nothing is ever
rebuilt, so no insertion is slow.  Keys must be evenly spread: digests are.
"""

from collections.abc import Iterator
from hashlib import blake2b as _blake2b

KEY_BYTES = 16
VALUE_BYTES = 6
MOST = (1 << 8 * VALUE_BYTES) - 1
_REST_BYTES = KEY_BYTES - 2
_ENTRY_BYTES = _REST_BYTES + VALUE_BYTES


def key_of(*parts: str) -> bytes:
    """The key of some texts, in this order."""
    text = parts[0] if len(parts) == 1 else "\0".join((str(len(parts[0])), *parts))
    return _blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


class KeyTable:
    """Keys of 16 bytes, each with a number from 0 to 2**48 - 1."""

    def __init__(self) -> None:
        self._buckets: list[bytearray | None] = [None] * (1 << 16)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def get(self, key: bytes) -> int | None:
        bucket = self._buckets[key[0] << 8 | key[1]]
        if bucket is None:
            return None
        place = _place(bucket, key[2:])
        return None if place < 0 else int.from_bytes(bucket[place + _REST_BYTES : place + _ENTRY_BYTES], "big")

    def setdefault(self, key: bytes, value: int) -> int:
        """The number of a key, which is set if it had none."""
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return value if found is None else found

    def put(self, key: bytes, value: int) -> bool:
        """Sets the number of a key.  Whether the key is new."""
        number, rest, data = key[0] << 8 | key[1], key[2:], value.to_bytes(VALUE_BYTES, "big")
        bucket = self._buckets[number]
        if bucket is None:
            bucket = self._buckets[number] = bytearray()
        place = _place(bucket, rest)
        if place >= 0:
            bucket[place + _REST_BYTES : place + _ENTRY_BYTES] = data
            return False
        bucket += rest
        bucket += data
        self._count += 1
        return True

    def values(self) -> Iterator[int]:
        for bucket in self._buckets:
            for place in range(_REST_BYTES, len(bucket or b""), _ENTRY_BYTES):
                yield int.from_bytes((bucket or b"")[place : place + VALUE_BYTES], "big")


def _place(bucket: bytearray, rest: bytes) -> int:
    """Where the entry of a key begins, or -1.  A find across two entries is none."""
    place = bucket.find(rest)
    while place > 0 and place % _ENTRY_BYTES:
        place = bucket.find(rest, place + 1)
    return place
