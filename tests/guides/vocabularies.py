"""Small vocabularies with everything that makes tokens awkward."""

from trellm import Vocabulary

BYTES = [bytes([byte]) for byte in range(256)]
WORDS = [b"ab", b"aba", b"ba", b"aa", b"aaa", b"aaaa", b"a" * 10, b"a" * 60, b"b" * 30, b"abc", b"bc", b"bb"]
MARKS = [b"01", b"12", b"123", b"2024", b"-0", b"  ", b" a", b' "', b'",', b'":', b"a\n", b"\n\n", b"--", b"a-a"]
WIDE = [text.encode() for text in ("é", "éa", "aé", "ééé", "世", "世界", "🙂", "é世a")]
PIECES = ["世".encode()[:2], "世".encode()[1:], "世".encode()[2:] + b"a", b"a" + "世".encode()[:1], "🙂".encode()[:3]]
ILL_FORMED = [b"\xff\xfe", b"a\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe4a", b"\x80\x80"]

# All bytes, words, pieces of characters, bytes that no text has; one word twice, a special token, padding, two EOS.
SMALL = Vocabulary(
    [*BYTES, *WORDS, *MARKS, *WIDE, *PIECES, *ILL_FORMED, b"aba", b"<s>", None, None, None], [305, 303], [302]
)
# Whole characters only, and no bytes to make others of.
CHARACTERS = Vocabulary.from_characters([*'ab01 \n"é世', "ab", "世界"])
# A few pieces, which spell little.
PIECEMEAL = Vocabulary([b"a", b"ab", b"bb", b"bab", b"aaa", "é".encode(), None], [6])
# One token longer than any text that is expected to be in a vocabulary.
LONG = Vocabulary([*BYTES, b"a" * 300, b"b" * 260, b"a" * 5, None], [259])
