"""Text as Java reads it out of bytes, and its hash code. What is expected comes from a real JVM (OpenJDK 17)."""

from __future__ import annotations

import pytest

from rmq_actors.wire.java_string import decode_utf8, java_hash_code

#: Bytes, `new String(bytes, UTF_8)` and its `hashCode()`.
DECODED = (
    ("ff", "\ufffd", 65533),
    ("c3", "\ufffd", 65533),
    ("80", "\ufffd", 65533),
    ("bf", "\ufffd", 65533),
    ("c080", "\ufffd\ufffd", 2097056),
    ("c1bf", "\ufffd\ufffd", 2097056),
    ("c341", "\ufffdA", 2031588),
    ("c3c3a9", "\ufffd\xe9", 2031756),
    ("e2", "\ufffd", 65533),
    ("e282", "\ufffd", 65533),
    ("e28241", "\ufffdA", 2031588),
    ("e2e282ac", "\ufffd\u20ac", 2039887),
    ("e08080", "\ufffd\ufffd\ufffd", 65074269),
    ("e09fbf", "\ufffd\ufffd\ufffd", 65074269),
    ("e0a080", "\u0800", 2048),
    ("eda080", "\ufffd", 65533),
    ("edbfbf", "\ufffd", 65533),
    ("eda0", "\ufffd", 65533),
    ("eda041", "\ufffdA", 2031588),
    ("ed41", "\ufffdA", 2031588),
    ("ed9fbf", "\ud7ff", 55295),
    ("ee8080", "\ue000", 57344),
    ("eda080edb080", "\ufffd\ufffd", 2097056),
    ("eda0eda0", "\ufffd\ufffd", 2097056),
    ("eda0f0", "\ufffd\ufffd", 2097056),
    ("f0", "\ufffd", 65533),
    ("f09f", "\ufffd", 65533),
    ("f09f98", "\ufffd", 65533),
    ("f09f9880", "\U0001f600", 1772899),
    ("f09f9841", "\ufffdA", 2031588),
    ("f09f41", "\ufffdA", 2031588),
    ("f08080", "\ufffd\ufffd\ufffd", 65074269),
    ("f08f", "\ufffd\ufffd", 2097056),
    ("f0908080", "\U00010000", 1770496),
    ("f48fbfbf", "\U0010ffff", 1803232),
    ("f4908080", "\ufffd\ufffd\ufffd\ufffd", 2017367872),
    ("f490", "\ufffd\ufffd", 2097056),
    ("f5808080", "\ufffd\ufffd\ufffd\ufffd", 2017367872),
    ("f7bfbfbf", "\ufffd\ufffd\ufffd\ufffd", 2017367872),
    ("f8888080", "\ufffd\ufffd\ufffd\ufffd", 2017367872),
    ("fc8480808080", "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd", 1662371552),
    ("fe", "\ufffd", 65533),
    ("fffe", "\ufffd\ufffd", 2097056),
    ("efbfbd", "\ufffd", 65533),
    ("efbfbe", "\ufffe", 65534),
    ("efbfbf", "\uffff", 65535),
    ("efbbbf41", "\ufeffA", 2023714),
    ("e282e282ac", "\ufffd\u20ac", 2039887),
    ("f09f98e282ac", "\ufffd\u20ac", 2039887),
    ("f09feda080", "\ufffd\ufffd", 2097056),
    ("41ff42", "A\ufffdB", 2094054),
    ("01ff02", "\x01\ufffd\x02", 2032486),
    ("ff0102", "\ufffd\x01\x02", 62977246),
    ("c301e202f001", "\ufffd\x01\ufffd\x02\ufffd\x01", 1208694701),
    ("4bed02", "K\ufffd\x02", 2103600),
    ("5441475301ffc302", "TAGS\x01\ufffd\ufffd\x02", 99737690),
    ("6bedb08078", "k\ufffdx", 2134470),
    ("e2ed80", "\ufffd\ufffd", 2097056),
    ("f0ed8080", "\ufffd\ud000", 2084771),
    ("f4ed", "\ufffd\ufffd", 2097056),
    ("ede282ac", "\ufffd\u20ac", 2039887),
    ("eda0c3a9", "\ufffd\xe9", 2031756),
    ("c3eda080", "\ufffd\ufffd", 2097056),
)


@pytest.mark.parametrize(("data", "text", "code"), DECODED)
def test_bytes_are_the_text_that_java_makes_of_them(data: str, text: str, code: int) -> None:
    """One U+FFFD in place of each malformed sequence: for Java what would be a surrogate is one of three bytes."""
    assert decode_utf8(bytes.fromhex(data)) == text
    assert java_hash_code(text) == code


@pytest.mark.parametrize("text", ["", "TagA", "\u00e9", "\u20ac", "\U0001f600", "\ufffd", "\ufeff", "\0"])
def test_utf8_comes_back(text: str) -> None:
    assert decode_utf8(text.encode()) == text
