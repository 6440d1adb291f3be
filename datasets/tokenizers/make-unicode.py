#!/usr/bin/env python3
"""Write Unicode's data for the tokenizers as a C header.

usage: make-unicode.py > unicode_data.h

The versions are those of the library `tokenizers` 0.22, whose parts differ: its regular expressions have Unicode 16, its
normalizers Unicode 9, and its digits Unicode 17. Needs the package unicodedata2, version 16.0.0, and perl, which knows the
characters of Unicode 9.
"""
import subprocess
import sys

import unicodedata2 as unicode

assert unicode.unidata_version == "16.0.0", unicode.unidata_version
CODES = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code <= 0xDFFF]
CATEGORY = {code: unicode.category(chr(code)) for code in CODES}
PERL = r'for (0 .. 0x10FFFF) { print "$_\n" if chr($_) =~ /\p{Present_In=9.0}/ }'
OLD = {int(line) for line in subprocess.run(["perl", "-e", PERL], capture_output=True, check=True, text=True).stdout.split()} & set(CODES)

# Letters that the categories do not have as such: circled and squared ones (Other_Alphabetic).
CIRCLED = [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]
JOINERS = (0x200C, 0x200D)
LATER_NUMBERS = [(0x11DE0, 0x11DE9), (0x16FF4, 0x16FF6)]
SPACES = [*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
HANGUL = range(0xAC00, 0xD7A4)


def inside(code, ranges):
    return any(first <= code <= last for first, last in ranges)


def is_word(code):
    return CATEGORY[code][0] in "LM" or CATEGORY[code] in ("Nd", "Nl", "Pc") or code in JOINERS or inside(code, CIRCLED)


def decomposition(code):
    """The canonical decomposition: one character, or two; none: empty."""
    text = unicode.decomposition(chr(code)) if code in OLD and code not in HANGUL else ""
    return [int(one, 16) for one in text.split()] if text and text[0] != "<" else []


DECOMPOSED = {code: decomposition(code) for code in CODES if decomposition(code)}
COMBINING = {code: unicode.combining(chr(code)) for code in CODES if code in OLD and unicode.combining(chr(code))}
COMPOSED = {tuple(pair): code for code, pair in DECOMPOSED.items() if len(pair) == 2 and unicode.normalize("NFC", chr(code)) == chr(code)}
SECOND = {pair[1] for pair in COMPOSED} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))


def may_change(code):
    return code in COMBINING or code in SECOND or (code in DECOMPOSED and unicode.normalize("NFC", chr(code)) != chr(code))


def ranges(value):
    """The first and last code of each range in which VALUE of a code is the same, and not 0."""
    first = last = None
    for code in CODES:
        now = value(code)
        if first is not None and (now != value(first) or code != last + 1):
            yield first, last, value(first)
            first = None
        if now and first is None:
            first = code
        last = code
    if first is not None:
        yield first, last, value(first)


def table(name, width, rows):
    print(f"static const uint32_t unicode_{name}[][{width}] = {{")
    line = "   "
    for row in rows:
        item = " { " + ", ".join(f"0x{one:X}" for one in row) + " },"
        if len(line + item) > 120:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")


print("/* Unicode's data for the tokenizers. Made by make-unicode.py. */\n")
for text, name, has in (
        ("Letters: first, last of each range.", "letters", lambda code: CATEGORY[code][0] == "L"),
        ("Numbers.", "numbers", lambda code: CATEGORY[code][0] == "N"),
        ("Numbers of Unicode 17.", "later_numbers", lambda code: inside(code, LATER_NUMBERS)),
        ("White space.", "spaces", lambda code: code in SPACES),
        ("Characters of words: letters, marks, digits, connectors.", "words", is_word),
        ("Characters that NFC may change, or join to the one before.", "unstable", may_change)):
    print(f"/* {text} */")
    table(name, 2, [row[:2] for row in ranges(lambda code: int(has(code)))])
print("/* Canonical combining classes: first, last, class. */")
table("combining", 3, ranges(lambda code: COMBINING.get(code, 0)))
print("/* Canonical decompositions, except Hangul's: character, first, second; second 0: none. */")
table("decomposed", 3, [(code, pair[0], pair[1] if len(pair) == 2 else 0) for code, pair in sorted(DECOMPOSED.items())])
print("/* Compositions, sorted: first, second, character. */")
table("composed", 3, [(*pair, code) for pair, code in sorted(COMPOSED.items())])
