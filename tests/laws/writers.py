"""Contents, and files with these contents. For each kind, write(draw, content, folder, drawn) writes the plain file, or a random
legal encoding of it, and returns the argument of --data. how names the encoding."""
import gzip
import json
import os
import struct
import zipfile
import zlib

from pictures import png, tiff


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
        names = draw.choice((("ant", "bee"), ("a b", 'say "x"', "c, d"), ("Äpfel", "b"), ("p; q", "r\ts"), None))
        return [[f"{draw.random.uniform(-9, 9):.3f}", str(draw.random.randrange(100)), draw.choice(names) if names else f"{draw.random.gauss(5, 2):.2f}"]
                for _ in range(40)]

    def write(self, draw, content, folder, drawn):
        titles, numbers = ["x", "a long title", "kind"], all("." in row[2] for row in content)
        plain = {"end": "\n", "separator": ",", "mark": "", "quotes": 0, "last": True, "stated": False, "blanks": 0, "order": (0, 1, 2), "spread": 0}
        names, text = {"table": content}, dict(plain)
        if drawn and draw.chance(0.4):
            names = {"train": [row for i, row in enumerate(content) if i % 5 != 4], "test": content[4::5]}
        place = draw.random.randrange(3) if drawn else 2        # of the target
        self.how = f"csv {' '.join(names)}"
        for name, rows in names.items():
            order = [0, 1]
            order.insert(place, 2)
            if drawn:
                end, mark = draw.choice(("\n", "\r\n", "\r")), draw.choice(("", "", "utf-8-sig", "latin-1"))
                text = {"end": end, "separator": draw.choice(",;\t"), "mark": mark, "quotes": draw.choice((0, 0.3, 1)), "last": draw.chance(0.7),
                        "stated": draw.chance(0.1), "blanks": draw.choice((0, 0, 0.3)), "spread": draw.choice((0, 0, 0.3)),
                        "order": draw.random.sample(order, 3) if name == "test" else order}
            self.how += f"; {text}"
            put(folder, f"{name}.csv", table(draw, [titles, *rows], **text))
        column = draw.choice(("kind", str(place + 1))) if place < 2 or (drawn and draw.chance(0.3)) else ""
        words = ([column] if column else []) + (["numbers" if numbers else "classes"] if drawn and draw.chance(0.3) else [])
        return ",".join(["csv:" + (folder if "train" in names else f"{folder}/table.csv"), *words])


def table(draw, rows, end, separator, mark, quotes, last, stated, blanks, order, spread):
    """QUOTES, BLANKS around cells, numbers written otherwise (SPREAD): by these chances."""
    def cell(row, column):
        text = row[column]
        if row is not rows[0] and column < 2 and draw.chance(spread):
            text = draw.choice(("+" + text if text[0] != "-" else text, text + ("0" if "." in text else ".0"), text + "e0", f"{text}E+00"))
        if any(c in text for c in separator + '"\n\t') or draw.chance(quotes):
            text = '"' + text.replace('"', '""') + '"'
        return " " * draw.random.randrange(3) + text + " " * draw.random.randrange(3) if draw.chance(blanks) else text

    text = end.join(separator.join(cell(row, column) for column in order) for row in rows) + (end if last else "")
    return ((f"sep={separator}{end}" if stated else "") + text).encode(mark or "utf-8")


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
    def draw(self, draw):
        self.most = draw.choice((300, 300, 70000))      # the latter of 32 bits alone
        self.words = ("--model", f"gpt:layers=1,heads=2,width=4,context=8,vocabulary={self.most}")
        return {part: [draw.random.randrange(self.most) for _ in range(n)] for part, n in (("train", 200), ("val", 90))}

    def write(self, draw, content, folder, drawn):
        self.how, bare = "tokens", 32 if self.most > 65536 or (drawn and draw.chance(0.5)) else 16     # of a file without a header
        for part, tokens in content.items():
            form = draw.choice(("bin", "bin", "npy", "megatron")) if drawn else "bin"
            if form != "bin":
                kind = draw.choice(("i4", "u4", "i8") if self.most > 65536 else ("u2", "i2", "i4", "u4", "i8"))
                self.how += f" {part} {form} {kind}"
            if form == "npy":
                put(folder, f"{part}.npy", npy(draw, kind, (len(tokens),), tokens, False)[0])
                continue
            if form == "megatron":
                self.megatron(draw, folder, part, tokens, {"u2": (8, "H"), "i2": (3, "h"), "i8": (5, "q")}.get(kind, (4, "i")))
                continue
            headed = drawn and draw.chance(0.7)
            bits = draw.choice((16, 32)) if headed and self.most < 65536 else bare
            magic, version = (20240520, 1) if bits == 16 else (20240801, 7)
            header = struct.pack("<3I", magic, version, len(tokens)).ljust(1024, b"\0") if headed else b""
            self.how += f" {part} of {bits} bits {'with' if headed else 'without'} llm.c's header"
            put(folder, f"{part}.bin", header + struct.pack(f"<{len(tokens)}{'H' if bits == 16 else 'I'}", *tokens))
        return f"tokens:{folder},8" + (f",{bare}" if bare == 32 or (drawn and draw.chance(0.5)) else "")

    def megatron(self, draw, folder, part, tokens, kind):
        """A data set of Megatron-LM, in sequences of any length, and documents of any number of them."""
        (code, letter), cuts = kind, sorted(draw.random.randrange(len(tokens) + 1) for _ in range(draw.random.randrange(6)))
        begins = [0, *cuts]
        lengths = [end - begin for begin, end in zip(begins, cuts + [len(tokens)])]
        documents = [0, *sorted(draw.random.randrange(len(lengths) + 1) for _ in range(draw.random.randrange(3))), len(lengths)]
        put(folder, f"{part}.bin", struct.pack(f"<{len(tokens)}{letter}", *tokens))
        put(folder, f"{part}.idx", b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(lengths), len(documents)) +
            struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(begins)}q", *(begin * struct.calcsize(letter) for begin in begins)) +
            struct.pack(f"<{len(documents)}q", *documents))


# ---- pictures ----

class Pictures(Kind):
    words = ("--model", "mlp")

    def __init__(self, ending):
        self.ending = ending

    def draw(self, draw):
        width, height, grey, levels = draw.choice((5, 9, 18)), draw.choice((6, 17)), draw.chance(0.4), draw.choice((2, 4, 16, 256))
        depth = draw.choice((8, 8, 16))
        level = [i * (2 ** depth - 1) // (levels - 1) for i in range(levels)]

        def picture():
            own = level if depth == 8 or draw.chance(0.4) else range(65536)
            return [draw.choice(own) if grey else (draw.choice(own), draw.choice(own), draw.choice(own)) for _ in range(width * height)]

        return width, height, depth, {f"{part}/{c}/{i}": picture() for part, n in (("train", 6), ("val", 3)) for c in "ab" for i in range(n)}

    def write(self, draw, content, folder, drawn):
        width, height, depth, pictures = content
        self.how = ""
        for name, pixels in pictures.items():
            least = 16 if depth == 16 and name == "train/a/0" else 1        # one picture of 16 bits, by which all have them
            how = {"least": least, "loose": name.startswith("val")}         # deeper ones in val lose bits
            if self.ending == "tif":
                pages = [pixels] * (2 if drawn and draw.chance(0.1) else 1)
                data, what = tiff(draw, width, height, pages, depth, drawn, **how)
            else:
                data, what = png(draw, width, height, pixels, depth, drawn, **how)
            put(folder, f"{name}.{self.ending}", data)
            self.how += f" {name}: {what};"
        return f"folder:{folder}"


# ---- volumes ----

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
        self.how, full = "", drawn and draw.chance(0.3)         # labels 0 and 255, in both parts
        for part in ("train", "val"):
            labels = [255 * v for v in label] if full else label
            self.how += f" {part}: {self.stack(draw, f'{folder}/{part}/label', size, drawn and draw.chance(0.4), labels, drawn)} of {max(labels)}"
            self.how += f" {self.stack(draw, f'{folder}/{part}/image', size, wide, image, drawn)}"
        return f"volume:{folder},1x16x16"

    def stack(self, draw, path, size, wide, values, drawn):
        form, area, depth = draw.choice(("zarr", "zarr", "tiff", "png")) if drawn else "zarr", size[1] * size[2], 16 if wide else 8
        if form == "zarr":
            return zarr(draw, f"{path}.zarr", size, wide, values, drawn)
        slices = [values[z * area:(z + 1) * area] for z in range(size[0])]
        if form == "tiff":
            data, how = tiff(draw, size[2], size[1], slices, depth, drawn, voxels=True)
            put(os.path.dirname(path), f"{os.path.basename(path)}{draw.choice(('.tif', '.tiff'))}", data)
            return how
        first = draw.choice((0, 8))
        for z, pixels in enumerate(slices):
            data, how = png(draw, size[2], size[1], pixels, depth, drawn, voxels=True)
            put(path, f"slice{first + z}.png", data)
        return f"{how}, from {first} on"


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
    "arrays": Arrays(), "table": Table(), "idx": Idx(), "tokens": Tokens(), "png": Pictures("png"), "tiff": Pictures("tif"),
    "volume": Volume(), "safetensors": Safetensors(), "onnx": Onnx(),
}
