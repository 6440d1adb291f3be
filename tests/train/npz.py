"""npy:FILE.npz gives the samples of npy:DIR with the same arrays, stored or deflated; damaged or malicious archives are refused
by name."""
import io
import os
import random
import struct
import zipfile
import zlib

from run import folder, losses, main, stargrad

NAMES = ("x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy")


def array(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data


def arrays():
    draw = random.Random(5)
    made = []
    for count in (60, 20):
        labels = [i % 3 for i in range(count)]
        pixels = b"".join(bytes(40 * label + draw.randrange(60) for _ in range(64)) for label in labels)
        made += [array("|u1", f"({count}, 8, 8)", pixels), array("<i8", f"({count},)", struct.pack(f"<{count}q", *labels))]
    return dict(zip(NAMES, made))


def packed(members, method, wide=False):
    """Of 64-bit sizes, which zipfile writes of large archives alone, by hand."""
    if not wide:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", method) as z:
            for name, data in members.items():
                with z.open(name, "w", force_zip64=True) as f:      # as numpy.savez
                    f.write(data)
        return out.getvalue()
    body, entries = b"", b""
    for name, data in members.items():
        common = struct.pack("<HHHHI", 0, 0, 0, 0, zlib.crc32(data)) + struct.pack("<II", 0xffffffff, 0xffffffff)
        extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), len(body))
        entries += b"PK\1\2" + struct.pack("<HH", 45, 45) + common + struct.pack("<HHHHHII", len(name), len(extra) + 6, 0, 0, 0, 0, 0xffffffff)
        entries += name.encode() + struct.pack("<HHH", 9, 2, 7) + extra
        body += b"PK\3\4" + struct.pack("<H", 45) + common + struct.pack("<HH", len(name), 0) + name.encode() + data
    end64 = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, len(members), len(members), len(entries), len(body))
    locator = b"PK\6\7" + struct.pack("<IQI", 0, len(body) + len(entries), 1)
    return body + entries + end64 + locator + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 0xffff, 0xffff, 0xffffffff, 0xffffffff, 0)


def put(name, data):
    path = os.path.join(os.path.dirname(folder("x")), name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def train(data, out, **how):
    return stargrad("train", "--model", "mlp", "--data", f"npy:{data}", "--batch", 20, "--steps", 3, "--deterministic", "--cpus", 1,
                    "--out", out, **how)


def test_same_as_folder():
    plain, out = folder("plain"), folder("out")
    os.makedirs(plain)
    for name, data in arrays().items():
        with open(os.path.join(plain, name), "wb") as f:
            f.write(data)
    train(plain, out)
    wanted = losses(out)
    for method, wide in ((zipfile.ZIP_STORED, False), (zipfile.ZIP_DEFLATED, False), (zipfile.ZIP_STORED, True)):
        out = folder("out")
        train(put("a.npz", packed(arrays(), method, wide)), out)
        assert losses(out) == wanted, (method, wide)


def test_refused():
    made, out = arrays(), folder("refused")
    good = packed(made, zipfile.ZIP_DEFLATED)
    entry = good.index(b"PK\1\2")
    x = {name: data for name, data in made.items() if name != "y_test.npy"}
    huge = lambda at, size: good[:at] + struct.pack("<I", size) + good[at + 4:]
    cases = [(good[:length], "zip: ") for length in (1, len(good) // 2, len(good) - 1)]
    cases += [(packed(x, zipfile.ZIP_STORED), "has no y_test.npy"), (packed(made, zipfile.ZIP_BZIP2), "compressed by another method"),
              (good[:entry + 8] + b"\1" + good[entry + 9:], "encrypted"), (huge(entry + 24, 0xfffffff0), "directory states an impossible size"),
              (huge(entry + 20, 0x7ffffff0), "ends early"), (huge(entry + 42, 0x7ffffff0), "x_train.npy is damaged"),
              (huge(entry + 16, 1), "x_train.npy is damaged"), (huge(entry + 24, 4000), "x_train.npy is damaged"),
              (huge(entry + 24, 3000), "x_train.npy is damaged"), (good[:200] + bytes([good[200] ^ 4]) + good[201:], "x_train.npy is damaged"),
              (b"no archive at all" * 9, "zip: "),
              (packed(made | {"x_train.npy": b"no array here"}, zipfile.ZIP_STORED), "x_train.npy: byte 0: is not a NumPy array")]
    for data, why in cases:
        path = put("bad.npz", data)
        said = train(path, out, status=1)
        assert path in said and why in said and said.count("\n") == 1, (why, said)
    assert not os.path.exists(out)


if __name__ == "__main__":
    main(globals())
