#!/usr/bin/env python3
"""Turn the digits.csv.gz of scikit-learn (Debian: python3-sklearn) into the C header of the built-in data set.

usage: make-digits.py digits.csv.gz > digits_data.h

A line of the file is an 8x8 image, row by row, 64 grey values from 0 to 16, and its label.
"""
import gzip
import sys

HEAD = """\
/* Optical recognition of handwritten digits: 1,797 images of 8x8 pixels, as scikit-learn ships them.
 * E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, CC BY 4.0.
 * Made by make-digits.py; the only change is the notation: a string is the label, then 64 pixels row by row,
 * 'a' for 0 (paper) to 'q' for 16 (ink). The first DIGITS_TRAIN images train, the other DIGITS_TEST test.
 */
"""
TEST = 360

if len(sys.argv) != 2:
    sys.exit(__doc__)
with gzip.open(sys.argv[1], "rt") as file:
    rows = [[int(float(field)) for field in line.split(",")] for line in file]
for number, row in enumerate(rows, 1):
    if len(row) != 65 or not all(0 <= pixel <= 16 for pixel in row[:64]) or not 0 <= row[64] <= 9:
        sys.exit(f"{sys.argv[1]}: line {number} is not an image of 64 pixels from 0 to 16 and its label")

print(HEAD + f"enum {{ DIGITS_TRAIN = {len(rows) - TEST}, DIGITS_TEST = {TEST} }};\n")
print("static const char digits_data[DIGITS_TRAIN + DIGITS_TEST][1 + 64 + 1] = {")
for row in rows:
    print(f'    "{row[64]}' + "".join(chr(ord("a") + pixel) for pixel in row[:64]) + '",')
print("};")
