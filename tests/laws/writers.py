"""Contents, and the files that hold them: for each kind, write(draw, content, folder, drawn) makes the plain file, or one of the legal encodings,
drawn at random, and returns what --data takes; how says which encoding it was."""
import gzip
import json
import os
import struct
import zipfile
import zlib


class Kind:
    words, of_weights, how = (), False, ""


# ---- NumPy ----

def npy(draw, kind, shape, values, drawn):
    """VALUES are whole numbers, the last index fastest."""
    order, version, fortran = "<", 1, False
    if drawn:
        order, version, fortran = draw.choice("<>"), draw.choice((1, 2, 3)), draw.chance(0.4)
    if fortran:
        values = turned(values, shape)
    letter = {"u1": "B", "i1": "b", "u2": "H", "i2": "h", "i4": "i", "u4": "I", "i8": "q", "f4": "f", "f8": "d"}[kind]
    descr = ("|" if kind[1] == "1" else order) + kind
    items = [("'descr'", f"'{descr}'"), ("'fortran_order'", str(fortran)), ("'shape'", f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})")]
    if drawn and draw.chance(0.3):
        draw.random.shuffle(items)
    header = "{" + ", ".join(f"{k}: {v}" for k, v in items) + (", }" if draw.chance(0.5) else "}")
    size = "<H" if version == 1 else "<I"
    room = 64 if not drawn else draw.choice((16, 64))
    header += " " * (-(len(header) + 9 + struct.calcsize(size)) % room) + "\n"
    what = f"npy v{version} {descr} {'Fortran' if fortran else 'C'}"
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack(size, len(header)) + header.encode() + struct.pack(f"{order}{len(values)}{letter}", *values), what


def turned(values, shape):
    """The same array, the first index fastest."""
    steps, step = [], 1
    for size in reversed(shape):
        steps.insert(0, step)
        step *= size
    order = [0]
    for size, step in reversed(list(zip(shape, steps))):
        order = [i * step + o for o in order for i in range(size)]
    return [values[i] for i in order]


class Arrays(Kind):
    words = ("--model", "mlp")

    def draw(self, draw):
        side, channels, classes = draw.choice((4, 7)), draw.choice((1, 3)), draw.choice((2, 5))
        return {part: ((n, side, side, channels), [draw.random.randrange(256) for _ in range(n * side * side * channels)], [i % classes for i in range(n)])
                for part, n in (("train", 24), ("test", 9))}

    def write(self, draw, content, folder, drawn):
        files, kind = {}, draw.choice(("u1", "i2", "u2", "i4", "i8")) if drawn else "i8"
        for part, (shape, pixels, labels) in content.items():
            files[f"x_{part}.npy"], _ = npy(draw, "u1", shape, pixels, drawn)
            files[f"y_{part}.npy"], self.how = npy(draw, kind, shape[:1], labels, drawn)
        if not drawn or draw.chance(0.4):
            for name, data in files.items():
                put(folder, name, data)
            return f"npy:{folder}"
        names = list(files)
        draw.random.shuffle(names)
        method = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        self.how += " in " + ("a stored npz" if method == zipfile.ZIP_STORED else "a deflated npz")
        with zipfile.ZipFile(f"{folder}/all.npz", "w", method) as z:
            for name in names:
                with z.open(name, "w", force_zip64=draw.chance(0.5)) as f:
                    f.write(files[name])
        return f"npy:{folder}/all.npz"


def put(folder, name, data):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    return path


# ---- tables ----

class Table(Kind):
    words = ("--model", "mlp")

    def draw(self, draw):
        names = draw.choice((("ant", "bee"), ("a b", 'say "x"', "c, d"), ("Äpfel", "b")))
        return [[f"{draw.random.uniform(-9, 9):.3f}", str(draw.random.randrange(100)), draw.choice(names)] for _ in range(40)]

    def write(self, draw, content, folder, drawn):
        end, bom, quotes, last = ("\r\n" if draw.chance(0.5) else "\n", draw.chance(0.3), draw.choice((0, 0.3, 1)), draw.chance(0.7)) if drawn else \
            ("\n", False, 0, True)
        self.how = f"csv, lines end with {end!r}, BOM {bom}, quotes {quotes}, end at the end {last}"

        def cell(text):
            return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') or draw.random.random() < quotes else text

        rows = [["x", "a long title", "kind"], *content]
        text = end.join(",".join(cell(c) for c in row) for row in rows) + (end if last else "")
        return "csv:" + put(folder, "table.csv", (b"\xef\xbb\xbf" if bom else b"") + text.encode())


# ---- MNIST's files, and tokens ----

class Idx(Kind):
    words = ("--model", "mlp")

    def draw(self, draw):
        side = draw.choice((5, 8))
        return {part: (n, side, bytes(draw.random.randrange(256) for _ in range(n * side * side)), bytes(i % 3 for i in range(n)))
                for part, n in (("train", 24), ("t10k", 9))}

    def write(self, draw, content, folder, drawn):
        self.how = ""
        for part, (n, side, pixels, labels) in content.items():
            for name, rank, data in (("images", 3, struct.pack(">BBBBIII", 0, 0, 8, 3, n, side, side) + pixels),
                                     ("labels", 1, struct.pack(">BBBBI", 0, 0, 8, 1, n) + labels)):
                dot, form = (draw.choice("-."), draw.choice(("plain", "gzip", "members"))) if drawn else ("-", "plain")
                cut = draw.random.randrange(len(data))
                packed = {"plain": data, "gzip": gzip.compress(data, draw.choice((1, 9))), "members": gzip.compress(data[:cut]) + gzip.compress(data[cut:])}[form]
                put(folder, f"{part}-{name}{dot}idx{rank}-ubyte" + ("" if form == "plain" else ".gz"), packed)
                self.how += f" {part} {name} {dot} {form}"
        return f"idx:{folder}"


class Tokens(Kind):
    words = ("--model", "gpt:layers=1,heads=2,width=8,context=8,vocabulary=300")

    def draw(self, draw):
        return {part: [draw.random.randrange(300) for _ in range(n)] for part, n in (("train", 200), ("val", 90))}

    def write(self, draw, content, folder, drawn):
        self.how = "tokens"
        for part, tokens in content.items():
            headed = drawn and draw.chance(0.7)
            header = struct.pack("<3I", 20240520, 1, len(tokens)).ljust(1024, b"\0") if headed else b""
            self.how += f" {part} {'with' if headed else 'without'} llm.c's header"
            put(folder, f"{part}.bin", header + struct.pack(f"<{len(tokens)}H", *tokens))
        return f"tokens:{folder},8"


# ---- PNG ----

def samples(values, depth):
    """A row of numbers of DEPTH bits, packed."""
    if depth == 8:
        return bytes(values)
    if depth == 16:
        return b"".join(bytes((v, v)) for v in values)
    bits = "".join(f"{v:0{depth}b}" for v in values)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


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


def png(draw, width, height, pixels, drawn):
    """PIXELS: (r,g,b) of each, or grey numbers, of which the fewest bits are known by the levels that there are."""
    grey = not isinstance(pixels[0], tuple)
    form = "grey" if grey else "colour"
    depth, table = 8, None
    if drawn and grey:
        depth = draw.choice([d for d in (1, 2, 4, 8) if all(v * (2 ** d - 1) % 255 == 0 for v in pixels)])
        values = [(v * (2 ** depth - 1) // 255,) for v in pixels]
    else:
        values = [(v,) for v in pixels] if grey else pixels
    if drawn and not grey:
        colours = sorted(set(pixels))
        form = draw.choice(["colour", "alpha"] + (["palette"] if len(colours) <= 256 else []))
        if form == "alpha":
            values = [(*v, 255) for v in pixels]
        if form == "palette":
            draw.random.shuffle(colours)
            table = colours
            depth = draw.choice([d for d in (1, 2, 4, 8) if len(colours) <= 2 ** d])
            values = [(colours.index(v),) for v in pixels]
    interlaced = drawn and draw.chance(0.4)
    bytes_of = max(1, len(values[0]) * depth // 8)
    data = b""
    for x0, y0, dx, dy in PASSES if interlaced else ((0, 0, 1, 1),):
        if x0 < width and y0 < height:
            rows = [samples([n for x in range(x0, width, dx) for n in values[y * width + x]], depth) for y in range(y0, height, dy)]
            data += filtered(rows, bytes_of, draw, drawn)
    packed = zlib.compress(data, draw.choice((0, 1, 9)))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    kind = {"grey": 0, "colour": 2, "palette": 3, "alpha": 6}[form]
    cut = draw.random.randrange(len(packed)) if drawn else len(packed)
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced)))]
    parts += [chunk(b"tEXt", b"Comment\0x")] if drawn and draw.chance(0.3) else []
    parts += [chunk(b"PLTE", b"".join(map(bytes, table)))] if table else []
    parts += [chunk(b"IDAT", part) for part in (packed[:cut], packed[cut:]) if part] + [chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts), f"PNG {form}, {depth} bits{', interlaced' if interlaced else ''}"


# ---- TIFF ----

def packbits(data):
    return b"".join(bytes((len(data[i:i + 128]) - 1,)) + data[i:i + 128] for i in range(0, len(data), 128))


def tiff(draw, width, height, pixels, drawn):
    grey = not isinstance(pixels[0], tuple)
    n = 1 if grey else 3
    values = [(v,) for v in pixels] if grey else pixels
    order, big, tiled, planar, form, predictor = "<", False, False, False, 1, False
    if drawn:
        order, big, tiled, planar = draw.choice("<>"), draw.chance(0.3), draw.chance(0.4), n > 1 and draw.chance(0.3)
        form = draw.choice((1, 8, 32773, 32946))
        predictor = form in (8, 32946) and draw.chance(0.5)
    across, down = (16 * draw.choice((1, 2)), 16) if tiled else (width, draw.random.randrange(1, height + 1) if drawn else height)
    planes = [[(v[c],) for v in values] for c in range(n)] if planar else [values]
    blocks = []
    for plane in planes:
        m = len(plane[0])
        for y0 in range(0, height, down):
            for x0 in range(0, width, across):
                data = bytearray()
                for y in range(y0, y0 + down if tiled else min(height, y0 + down)):
                    row = [c for x in range(x0, x0 + across) for c in (plane[y * width + x] if x < width and y < height else (0,) * m)]
                    data += bytes((row[i] - (row[i - m] if i >= m else 0)) & 255 for i in range(len(row))) if predictor else bytes(row)
                data = bytes(data)
                if form == 32773:       # each row by itself
                    size = across * m
                    data = b"".join(packbits(data[i:i + size]) for i in range(0, len(data), size))
                blocks.append(zlib.compress(data) if form in (8, 32946) else data)
    head = 16 if big else 8
    body, offsets = b"", []
    for block in blocks:
        offsets.append(head + len(body))
        body += block + b"\0" * (len(block) % 2)
    word = "Q" if big else "I"
    tags = [(256, "I", [width]), (257, "I", [height]), (258, "H", [8] * n), (259, "H", [form]), (262, "H", [1 if grey else 2]), (277, "H", [n]),
            (284, "H", [2 if planar else 1]), (317, "H", [2 if predictor else 1])]
    tags += [(322, "I", [across]), (323, "I", [down]), (324, word, offsets), (325, word, [len(b) for b in blocks])] if tiled else \
        [(273, word, offsets), (278, "I", [down]), (279, word, [len(b) for b in blocks])]
    entries, extra, at = b"", b"", head + len(body)
    table = (8 + 20 * len(tags) + 8) if big else (2 + 12 * len(tags) + 4)
    for tag, kind, numbers in sorted(tags):
        data = struct.pack(f"{order}{len(numbers)}{kind}", *numbers)
        code = {"H": 3, "I": 4, "Q": 16}[kind]
        room = 8 if big else 4
        if len(data) > room:
            place, extra = at + table + len(extra), extra + data + b"\0" * (len(data) % 2)
            data = struct.pack(order + word, place)
        entries += struct.pack(f"{order}HH{word}", tag, code, len(numbers)) + data.ljust(room, b"\0")
    mark = b"II" if order == "<" else b"MM"
    start = mark + (struct.pack(order + "HHHQ", 43, 8, 0, at) if big else struct.pack(order + "HI", 42, at))
    count = struct.pack(order + ("Q" if big else "H"), len(tags))
    how = f"TIFF {order}{' big' if big else ''}{' tiles' if tiled else f' strips of {down}'}{' planes' if planar else ''}, compression {form}"
    return start + body + count + entries + struct.pack(order + word, 0) + extra, how + (", predicted" if predictor else "")


class Pictures(Kind):
    words = ("--model", "mlp")

    def __init__(self, encode, ending):
        self.encode, self.ending = encode, ending

    def draw(self, draw):
        width, height, grey, levels = draw.choice((5, 9, 18)), draw.choice((6, 17)), draw.chance(0.4), draw.choice((2, 4, 16, 256))
        level = [i * 255 // (levels - 1) for i in range(levels)]

        def picture():
            return [draw.choice(level) if grey else (draw.choice(level), draw.choice(level), draw.choice(level)) for _ in range(width * height)]

        return width, height, {f"{part}/{c}/{i}": picture() for part, n in (("train", 6), ("val", 3)) for c in "ab" for i in range(n)}

    def write(self, draw, content, folder, drawn):
        width, height, pictures = content
        self.how = ""
        for name, pixels in pictures.items():
            data, how = self.encode(draw, width, height, pixels, drawn)
            put(folder, f"{name}.{self.ending}", data)
            self.how += f" {name}: {how};"
        return f"folder:{folder}"


# ---- Zarr ----

class Volume(Kind):
    words = ("--model", "unet2d:width=2,levels=1")

    def draw(self, draw):
        size = (draw.choice((3, 6)), 20, 24)
        count = size[0] * size[1] * size[2]
        wide = draw.chance(0.4)         # of 16 bits, by which pixels are scaled
        image = [draw.random.randrange(60000 if wide else 250) for _ in range(count)]
        return size, wide, image, [int(v > max(image) // 2) for v in image]

    def write(self, draw, content, folder, drawn):
        size, wide, image, label = content
        for part in ("train", "val"):
            zarr(draw, f"{folder}/{part}/label.zarr", size, drawn and draw.chance(0.4), label, drawn)
            self.how = zarr(draw, f"{folder}/{part}/image.zarr", size, wide, image, drawn)
        return f"volume:{folder},1x16x16"


def zarr(draw, folder, size, wide, values, drawn):
    chunk = [draw.random.randrange(1, s + 3) for s in size] if drawn else list(size)
    version, codec, separator, fortran = (draw.choice((2, 3)), draw.choice((None, "gzip", "zlib")), draw.choice("./"), draw.chance(0.3)) if drawn else \
        (2, None, ".", False)
    order = draw.choice("<>") if drawn else "<"
    if version == 3:
        fortran, codec = False, "gzip" if codec == "zlib" else codec
    grid = [range(-(-s // c)) for s, c in zip(size, chunk)]
    for z in grid[0]:
        for y in grid[1]:
            for x in grid[2]:
                inside = [[min(g * c + i, s - 1) for i in range(c)] for g, c, s in zip((z, y, x), chunk, size)]
                block = [values[(a * size[1] + b) * size[2] + d] for a in inside[0] for b in inside[1] for d in inside[2]]
                if fortran:
                    block = turned(block, chunk)
                data = struct.pack(f"{order}{len(block)}{'H' if wide else 'B'}", *block)
                data = gzip.compress(data) if codec == "gzip" else zlib.compress(data) if codec == "zlib" else data
                put(folder, ("c" + separator if version == 3 else "") + separator.join(map(str, (z, y, x))), data)
    if version == 2:
        meta = {"zarr_format": 2, "shape": list(size), "chunks": chunk, "dtype": f"{order}u2" if wide else "|u1", "fill_value": 0,
                "order": "F" if fortran else "C", "filters": None, "compressor": codec and {"id": codec, "level": 1}, "dimension_separator": separator}
        put(folder, ".zarray", json.dumps(meta).encode())
    else:
        codecs = [{"name": "bytes", "configuration": {"endian": "little" if order == "<" else "big"}}] if wide else [{"name": "bytes"}]
        codecs += [{"name": "gzip", "configuration": {"level": 1}}] if codec else []
        meta = {"zarr_format": 3, "node_type": "array", "shape": list(size), "data_type": "uint16" if wide else "uint8",
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}, "fill_value": 0, "codecs": codecs,
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}}}
        put(folder, "zarr.json", json.dumps(meta).encode())
    return f"Zarr v{version} {chunk} {codec} {separator} {'F' if fortran else 'C'} {order}{16 if wide else 8} bits"


# ---- weights ----

class Safetensors(Kind):
    of_weights = True
    sizes = (("fc1", 512, 64), ("fc2", 256, 512), ("fc3", 10, 256))

    def draw(self, draw):
        return {f"{n}.{p}": (([o, i] if p == "weight" else [o]), [draw.random.randrange(-99, 100) / 512 for _ in range(o * (i if p == "weight" else 1))])
                for n, o, i in self.sizes for p in ("weight", "bias")}

    def write(self, draw, content, folder, drawn):
        names, header, data, self.how = list(content), {}, b"", "safetensors"
        if drawn:
            draw.random.shuffle(names)
            if draw.chance(0.5):
                header["__metadata__"] = {"format": "pt"}
        shards = {}
        for name in names:
            shape, values = content[name]
            kind, letter = draw.choice((("F32", "f"), ("F64", "d"))) if drawn else ("F32", "f")
            part = struct.pack(f"<{len(values)}{letter}", *values)
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
            data += part
            shards[name] = (kind, shape, part)
        if drawn and draw.chance(0.3):
            return self.write_shards(draw, shards, folder)
        text = json.dumps(header, separators=draw.choice(((",", ":"), (", ", ": ")))).encode()
        text += b" " * (draw.random.randrange(9) if drawn else -len(text) % 8)
        return put(folder, "model.safetensors", struct.pack("<Q", len(text)) + text + data)

    def write_shards(self, draw, tensors, folder):
        where = {name: f"part-{draw.choice((1, 2, 3))}.safetensors" for name in tensors}
        for file in set(where.values()):
            header, data = {}, b""
            for name, (kind, shape, part) in tensors.items():
                if where[name] == file:
                    header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
                    data += part
            text = json.dumps(header).encode()
            put(folder, file, struct.pack("<Q", len(text)) + text + data)
        self.how = "an index of several files"
        return put(folder, "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": where}).encode())


# ---- ONNX ----

def varint(n):
    n &= (1 << 64) - 1
    out = b""
    while n > 127:
        out, n = out + bytes((n & 127 | 128,)), n >> 7
    return out + bytes((n,))


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def node(kind, inputs, outputs, **attributes):
    out = b"".join(block(1, i) for i in inputs) + b"".join(block(2, o) for o in outputs) + block(4, kind)
    return block(1, out + b"".join(block(5, block(1, k) + number(3, v) + number(20, 2)) for k, v in attributes.items()))


class Onnx(Kind):
    """Whole numbers as weights, which all types hold."""
    of_weights = True

    def draw(self, draw):
        return {"w1": ((16, 64), [draw.random.randrange(0, 3) for _ in range(1024)]), "b1": ((16,), [draw.random.randrange(0, 9) for _ in range(16)]),
                "w2": ((10, 16), [draw.random.randrange(0, 2) for _ in range(160)]), "b2": ((10,), [draw.random.randrange(0, 9) for _ in range(10)])}

    def write(self, draw, content, folder, drawn):
        nodes, tensors, self.how = [], [], "ONNX"
        for name, (shape, values) in content.items():
            tensor, kind = self.tensor(draw, name, shape, values, folder, drawn)
            tensors.append(block(5, tensor))
            if kind not in (1, 10, 11, 16):
                nodes.append(node("Cast", [name], [name + "f"], to=1))
            self.how += f" {name}: {self.form};"
        real = {name: name if not any(name.encode() + b"f" in n for n in nodes) else name + "f" for name in content}
        if drawn:
            draw.random.shuffle(tensors)
        nodes += [node("Flatten", ["x"], ["flat"], axis=1), node("Gemm", ["flat", real["w1"], real["b1"]], ["h"], transB=1), node("Relu", ["h"], ["r"]),
                  node("Gemm", ["r", real["w2"], real["b2"]], ["y"], transB=1)]
        shape = b"".join(block(1, number(1, d)) if d else block(1, block(2, "N")) for d in (0, 1, 8, 8))
        graph = b"".join(nodes) + block(2, "g") + b"".join(tensors) + block(11, block(1, "x") + block(2, block(1, number(1, 1) + block(2, shape)))) + \
            block(12, block(1, "y"))
        opset = draw.choice((9, 13, 17, 20)) if drawn else 17
        return put(folder, "net.onnx", number(1, 8) + block(7, graph) + block(8, block(1, "") + number(2, opset)))

    def tensor(self, draw, name, shape, values, folder, drawn):
        kinds = {1: "f", 11: "d", 10: "e", 16: "", 2: "B", 3: "b", 4: "H", 5: "h", 6: "i", 7: "q", 12: "I", 13: "Q"}
        kind, form = (draw.choice(kinds), draw.choice(("raw", "typed", "beside"))) if drawn else (1, "raw")
        head = b"".join(number(1, d) for d in shape) + number(2, kind) + block(8, name)
        raw = b"".join(struct.pack("<f", v)[2:] for v in values) if kind == 16 else struct.pack(f"<{len(values)}{kinds[kind]}", *values)
        self.form = f"type {kind} {form}"
        if form == "raw":
            return head + block(9, raw), kind
        if form == "beside":
            before = draw.random.randrange(9)
            put(folder, f"{name}.bin", bytes(before) + raw)
            entries = (("location", f"{name}.bin"), ("offset", str(before)), ("length", str(len(raw))))
            return head + b"".join(block(13, block(1, k) + block(2, v)) for k, v in entries) + number(14, 1), kind
        packed = draw.chance(0.7)
        if kind in (1, 11):
            size, field = struct.calcsize(kinds[kind]), {1: 4, 11: 10}[kind]
            one = lambda i: varint(field << 3 | {1: 5, 11: 1}[kind]) + raw[i:i + size]          # noqa: E731
            return head + (block(field, raw) if packed else b"".join(one(i) for i in range(0, len(raw), size))), kind
        field = 7 if kind == 7 else 11 if kind in (12, 13) else 5
        bits = [raw[2 * i] | raw[2 * i + 1] << 8 for i in range(len(values))] if kind in (10, 16) else values
        return head + (block(field, b"".join(map(varint, bits))) if packed else b"".join(number(field, v) for v in bits)), kind


CONTENTS = {
    "arrays": Arrays(), "table": Table(), "idx": Idx(), "tokens": Tokens(), "png": Pictures(png, "png"), "tiff": Pictures(tiff, "tif"),
    "volume": Volume(), "safetensors": Safetensors(), "onnx": Onnx(),
}
