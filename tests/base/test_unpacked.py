"""Files as people send them: packed, in UTF-16, with a terminal's colours."""

import bz2
import codecs
import gzip
import importlib.util
import io
import lzma

import pytest
from allranks.base.unpacked import CHUNK, PackedError, Unpacked, plain_text

TEXT = "\r\n".join(f"line {n}: busbw 3{n % 10}.5 µs ✓" for n in range(3000))


def whole(data):
    source, parts = Unpacked(io.BytesIO(data)), []
    while more := source.read():
        parts.append(more)
    return b"".join(parts), source.fault, max(map(len, parts), default=0)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_every_packing_and_encoding_gives_the_same_text(pack, encoding):
    assert whole(pack(TEXT.encode(encoding)))[:2] == (TEXT.encode(), "")


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)])
def test_a_torn_file_gives_what_is_whole_and_says_so(name, pack):
    packed = pack(bytes(range(256)) * 8000)
    found, fault, _ = whole(packed[: len(packed) // 2])
    assert (bytes(range(256)) * 8000).startswith(found) and fault == f"the {name} file ends in the middle"
    middle = len(packed) // 2
    _, fault, _ = whole(packed[:middle] + b"\x00\xff\x13\x07" * 8 + packed[middle + 32 :])
    assert fault in (f"the {name} file is damaged", f"the {name} file ends in the middle")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_small_file_that_unpacks_to_much_comes_in_pieces(pack):
    found, fault, most = whole(pack(bytes(64 << 20)))
    assert (len(found), fault) == (64 << 20, "") and most <= CHUNK


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_first_bytes_are_no_more_than_asked_for(pack):
    data = TEXT.encode() * 40
    for most in (0, 1, CHUNK, CHUNK + 1, len(data), len(data) + 1):
        assert Unpacked(io.BytesIO(pack(data))).first(most) == data[:most]


def test_several_gzips_one_after_the_other_are_one():
    assert whole(gzip.compress(b"one ") + gzip.compress(b"two"))[0] == b"one two"


@pytest.mark.parametrize(
    "data", [b"\x80\x02}q\x00.", b"SQLite format 3\x00" + bytes(80), codecs.BOM_UTF8 + b"{}", b"a\0b"]
)
def test_other_bytes_stay_as_they_are(data):
    assert whole(data)[0] == data.removeprefix(codecs.BOM_UTF8)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) for name in ("compression", "zstandard")), reason="this Python unpacks zstd"
)
def test_zstd_without_a_module_says_what_to_do():
    with pytest.raises(PackedError, match="zstd -d"):
        Unpacked(io.BytesIO(b"\x28\xb5\x2f\xfd" + bytes(20)))


def test_colours_and_titles_are_taken_away():
    assert plain_text("\x1b]0;title\x07\x1b[1;31mrank 3\x1b[0m\x1b(B ok") == "rank 3 ok"
