#!/usr/bin/env python3
"""Write the ranges of Unicode's letters (categories L…) and numbers (N…), according to Python's unicodedata, as a C header.

usage: make-unicode.py > unicode_data.h
"""
import sys
import unicodedata


def ranges(category):
    first = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(category)
        if inside and first is None:
            first = code
        elif not inside and first is not None:
            yield first, code - 1
            first = None


print(f"/* Unicode {unicodedata.unidata_version}'s letters and numbers, first and last of each range. Made by make-unicode.py. */")
for name, category in (("letters", "L"), ("numbers", "N")):
    print(f"static const uint32_t unicode_{name}[][2] = {{")
    line = "   "
    for first, last in ranges(category):
        item = f" {{ 0x{first:X}, 0x{last:X} }},"
        if len(line + item) > 120:
            print(line)
            line = "   "
        line += item
    print(line + "\n};")
