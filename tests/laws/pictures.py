"""Writes PNG and TIFF files, plain or in a random encoding. Pixels are (r,g,b) or grey values of DEPTH 8 or 16 bits. An encoding
can store fewer bits, at least LEAST, if they represent all values. If LOOSE, it can store more bits, which a reader of 8 bits
must round. VOXELS are values that are stored unchanged."""
import struct
import zlib


def depths(pixels, depth, allowed, least, voxels):
    """Those of the bits ALLOWED that hold the pixels, spread over the range."""
    numbers = {v for p in pixels for v in (p if isinstance(p, tuple) else (p,))}
    return [d for d in allowed if least <= d <= depth and (d == depth or (not voxels and all(v * (2 ** d - 1) % (2 ** depth - 1) == 0 for v in numbers)))]


def stored(draw, pixels, depth, bits):
    """The pixels in so many bits, each a tuple."""
    def one(v):
        return min(max(257 * v + draw.random.randrange(-128, 129), 0), 65535) if bits > depth else v * (2 ** bits - 1) // (2 ** depth - 1)

    return [tuple(map(one, p if isinstance(p, tuple) else (p,))) for p in pixels]


def packed(values, bits, order=">"):
    """A row of numbers of so many bits, as bytes."""
    if bits >= 8:
        return struct.pack(f"{order}{len(values)}{'H' if bits == 16 else 'B'}", *values)
    text = "".join(f"{v:0{bits}b}" for v in values)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))


# ---- PNG ----

def filtered(rows, width, draw, drawn):
    """Each row by a filter of its own; WIDTH: bytes of a pixel, at least 1."""
    out, before = b"", bytes(len(rows[0]) if rows else 0)
    for row in rows:
        kind = draw.random.randrange(5) if drawn else 0
        line = bytearray()
        for i, x in enumerate(row):
            a, b, c = row[i - width] if i >= width else 0, before[i], before[i - width] if i >= width else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line.append((x - (0, a, b, (a + b) // 2, paeth)[kind]) & 255)
        out += bytes((kind,)) + bytes(line)
        before = row
    return out


PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
KINDS = {"grey": 0, "colour": 2, "palette": 3, "grey and alpha": 4, "colour and alpha": 6}


def png(draw, width, height, pixels, depth, drawn, least=1, loose=False, voxels=False):
    grey, bits, form, table, see = not isinstance(pixels[0], tuple), depth, "", [], b""
    form = "grey" if grey else "colour"
    if drawn and not voxels:
        colours = sorted(set(pixels))
        form = draw.choice(["grey", "grey and alpha"] if grey else ["colour", "colour and alpha", "palette"])
        bits = draw.choice(depths(pixels, depth, (1, 2, 4, 8, 16) if form == "grey" else (8, 16), least, voxels) + ([16] if loose and depth == 8 else []))
        if form == "palette" and (len(colours) > 256 or bits == 16):
            form = "colour"
    values = stored(draw, pixels, depth, bits)
    most = 2 ** bits - 1
    if form.endswith("alpha"):
        values = [(*v, draw.random.randrange(most + 1)) for v in values]
    elif form == "palette":
        table = sorted(set(values))
        draw.random.shuffle(table)
        bits = draw.choice([d for d in (1, 2, 4, 8) if len(table) <= 2 ** d])
        values = [(table.index(v),) for v in values]
    if drawn and not voxels and draw.chance(0.2) and not form.endswith("alpha"):        # a colour that is transparent
        see = bytes(draw.random.randrange(256) for _ in table) if table else struct.pack(f">{len(values[0])}H", *draw.choice(values))
    interlaced = drawn and draw.chance(0.4)
    data = b""
    for x0, y0, dx, dy in PASSES if interlaced else ((0, 0, 1, 1),):
        if x0 < width and y0 < height:
            rows = [packed([n for x in range(x0, width, dx) for n in values[y * width + x]], bits) for y in range(y0, height, dy)]
            data += filtered(rows, max(1, len(values[0]) * bits // 8), draw, drawn)
    data = zlib.compress(data, draw.choice((0, 1, 9)))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    cut = draw.random.randrange(len(data)) if drawn else len(data)
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, KINDS[form], 0, 0, int(interlaced)))]
    parts += [chunk(b"tEXt", b"Comment\0x")] if drawn and draw.chance(0.3) else []
    parts += [chunk(b"PLTE", b"".join(map(bytes, table)))] if table else []
    parts += [chunk(b"tRNS", see)] if see else []
    parts += [chunk(b"IDAT", part) for part in (data[:cut], data[cut:]) if part] + [chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts), f"PNG {form}, {bits} bits{', interlaced' if interlaced else ''}{', tRNS' if see else ''}"


# ---- TIFF ----

def packbits(data):
    return b"".join(bytes((len(data[i:i + 128]) - 1,)) + data[i:i + 128] for i in range(0, len(data), 128))


def lzw(data):
    """TIFF 6.0, section 13: codes of 9 to 12 bits, the highest bit first."""
    codes, table, width, before = [(256, 9)], {bytes((i,)): i for i in range(256)}, 9, b""
    for i in range(len(data)):
        longer = before + data[i:i + 1]
        if longer in table:
            before = longer
            continue
        codes.append((table[before], width))
        table[longer] = len(table) + 2
        width = max(9, (len(table) + 2).bit_length())
        if len(table) + 2 == 4095:
            codes.append((256, 12))
            table, width = {bytes((k,)): k for k in range(256)}, 9
        before = data[i:i + 1]
    codes += [(table[before], width), (257, max(width, (len(table) + 3).bit_length()))]
    text = "".join(f"{code:0{bits}b}" for code, bits in codes)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


COMPRESSIONS = {1: bytes, 5: lzw, 8: zlib.compress, 32946: zlib.compress, 32773: packbits}


def coloured(draw, pixels, depth, drawn, least, loose, voxels):
    """The samples of each pixel, how many bits they have, and the tags that say what they are."""
    grey = not isinstance(pixels[0], tuple)
    if not drawn or voxels:
        return stored(draw, pixels, depth, depth), depth, [(262, "H", [1 if grey else 2])], ""
    bits = draw.choice(depths(pixels, depth, (1, 2, 4, 8, 16), least, voxels) + ([16] if loose and depth == 8 else []))
    values, most = stored(draw, pixels, depth, bits), 2 ** bits - 1
    table = sorted(set(values))
    form = draw.choice(["black is zero", "white is zero"] if grey else ["RGB", "RGB", "CMYK", *["palette"] * (len(table) <= 256 and bits <= 8)])
    if form in ("white is zero", "CMYK"):
        values = [(*(most - c for c in v), *([0] if form == "CMYK" else [])) for v in values]
    if form == "palette":
        draw.random.shuffle(table)
        own, bits = bits, draw.choice([d for d in (1, 2, 4, 8) if len(table) <= 2 ** d])
        values = [(table.index(v),) for v in values]
        full = [c * 65535 // (2 ** own - 1) for i in range(3) for c in [v[i] for v in table] + [0] * (2 ** bits - len(table))]
        return values, bits, [(262, "H", [3]), (320, "H", full)], form
    tags = [(262, "H", [{"white is zero": 0, "black is zero": 1, "RGB": 2, "CMYK": 5}[form]])]
    if draw.chance(0.3):
        extra = draw.choice((0, 1, 2))      # unknown, alpha that colours are multiplied by, alpha
        values = [(*v, most if extra == 1 else draw.random.randrange(most + 1)) for v in values]
        tags.append((338, "H", [extra]))
        form += f" and sample of type {extra}"
    return values, bits, tags, form


def turn(values, width, height, orientation):
    """The upright pixels as they are stored, with the stored width and height."""
    across, down = (height, width) if orientation > 4 else (width, height)
    out = []
    for row in range(down):
        for column in range(across):
            x, y = (row, column) if orientation > 4 else (column, row)
            out.append(values[(height - 1 - y if orientation in (3, 4, 7, 8) else y) * width + (width - 1 - x if orientation in (2, 3, 6, 7) else x)])
    return out, across, down


def page(draw, width, height, pixels, depth, drawn, least, loose, voxels, order, cut):
    """One image's blocks, its tags without their places, and what it is. CUT: is it tiled; how wide are tiles; the share of the rows in a strip."""
    values, bits, tags, how = coloured(draw, pixels, depth, drawn, least, loose, voxels)
    n, planar, form, predictor, orientation = len(values[0]), False, 1, False, 1
    if drawn:
        planar, form = n > 1 and draw.chance(0.3), draw.choice(COMPRESSIONS)
        predictor = form in (5, 8, 32946) and bits >= 8 and draw.chance(0.5)
        orientation = 1 if voxels or draw.chance(0.3) else draw.random.randrange(1, 9)
    values, width, height = turn(values, width, height, orientation)
    tiled, across, down = cut
    across, down = (16 * across, 16) if tiled else (width, max(1, int(down * height)))
    blocks = []
    for plane in [[(v[c],) for v in values] for c in range(n)] if planar else [values]:
        m = len(plane[0])
        for y0 in range(0, height, down):
            for x0 in range(0, width, across):
                lines = []
                for y in range(y0, y0 + down if tiled else min(height, y0 + down)):
                    row = [c for x in range(x0, x0 + across) for c in (plane[y * width + x] if x < width and y < height else (0,) * m)]
                    if predictor:
                        row = [(row[i] - (row[i - m] if i >= m else 0)) % 2 ** bits for i in range(len(row))]
                    lines.append(packed(row, bits, order))
                blocks.append(b"".join(map(packbits, lines)) if form == 32773 else COMPRESSIONS[form](b"".join(lines)))
    tags += [(256, "I", [width]), (257, "I", [height]), (258, "H", [bits] * n), (259, "H", [form]), (277, "H", [n]), (284, "H", [2 if planar else 1]),
             (317, "H", [2 if predictor else 1])]
    tags += [(322, "I", [across]), (323, "I", [down])] if tiled else [(278, "I", [down])]
    tags += [(274, "H", [orientation])] if orientation > 1 or (drawn and draw.chance(0.3)) else []
    how += f" {bits} bits{' tiles' if tiled else f' strips of {down}'}{' planes' if planar else ''}, compression {form}, orientation {orientation}"
    return blocks, tags, how + (", predicted" if predictor else "")


def tiff(draw, width, height, pages, depth, drawn, least=1, loose=False, voxels=False):
    """An image of each of the PAGES."""
    order, big = (draw.choice("<>"), draw.chance(0.3)) if drawn else ("<", False)
    cut = (draw.chance(0.4), draw.choice((1, 2)), draw.random.random()) if drawn else (False, 1, 1)       # of volumes the same for all pages
    word, count, room = ("Q", "Q", 8) if big else ("I", "H", 4)
    mark = b"II" if order == "<" else b"MM"
    file = bytearray(mark + (struct.pack(order + "HHHQ", 43, 8, 0, 0) if big else struct.pack(order + "HI", 42, 0)))
    link = len(file) - room         # where the place of the next page's tags goes
    for pixels in pages:
        blocks, tags, how = page(draw, width, height, pixels, depth, drawn, least, loose, voxels, order, cut)
        offsets = []
        for block in blocks:
            offsets.append(len(file))
            file += block + b"\0" * (len(block) % 2)
        tags += [(324 if cut[0] else 273, word, offsets), (325 if cut[0] else 279, word, [len(b) for b in blocks])]
        struct.pack_into(order + word, file, link, len(file))
        entries, extra = struct.pack(order + count, len(tags)), b""
        behind = len(file) + len(entries) + len(tags) * (4 + 2 * room) + room
        for tag, kind, numbers in sorted(tags):
            data = struct.pack(f"{order}{len(numbers)}{kind}", *numbers)
            if len(data) > room:
                place, extra = behind + len(extra), extra + data + b"\0" * (len(data) % 2)
                data = struct.pack(order + word, place)
            entries += struct.pack(f"{order}HH{word}", tag, {"H": 3, "I": 4, "Q": 16}[kind], len(numbers)) + data.ljust(room, b"\0")
        link = len(file) + len(entries)
        file += entries + bytes(room) + extra
    return bytes(file), f"TIFF {order}{' big' if big else ''} {how}"
