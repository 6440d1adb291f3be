#!/usr/bin/env python3
"""Volumes that Python's zarr, h5py and tifffile wrote, with uneven chunks and every compressor, are read, or refused by name.
These libraries read the files that segment writes: values, shapes, chunks."""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "train"))
from run import STARGRAD, Skip, folder, main  # noqa: E402

SIDES = (5, 40, 33)


def stargrad(*words, status=0):
    run = subprocess.run([STARGRAD, *map(str, words)], capture_output=True, text=True)
    assert run.returncode == status, (words, run.returncode, run.stdout, run.stderr)
    return run.stdout + run.stderr


def test_what_libraries_write_is_read_and_the_other_way_round():
    try:
        import h5py
        import numcodecs
        import numpy as np
        import tifffile
        import zarr
    except ImportError as missing:
        raise Skip(f"{missing}: wants zarr 3, h5py, numcodecs, numpy, tifffile") from missing
    whole = np.random.default_rng(1).integers(0, 256, SIDES, dtype="u1")
    work = pathlib.Path(folder("volumes"))
    work.mkdir()
    for part in ("train", "val"):
        for name, voxels in (("image", whole), ("label", whole > 128)):
            zarr.create_array(str(work / "set" / part / f"{name}.zarr"), data=voxels.astype("u1"), chunks=(2, 17, 33), zarr_format=2)
    stargrad("train", "--model", "unet2d", "--data", f"volume:{work}/set,1x16x16", "--batch", 8, "--steps", 3, "--out", work / "run")
    how = ("segment", "--weights", work / "run/model.safetensors", "--model", "unet2d", "--patch", "1x32x32", "--overlap", "0x8x8",
           "--cpus", 1)
    count = iter(range(1000))

    def segment(source, out=None, **more):
        out = out or work / f"out{next(count)}.raw"
        return out, stargrad(*how, "--in", source, "--out", out, *(word for key, value in more.items() for word in (f"--{key}", value)))

    def told_of(source):
        return stargrad(*how, "--in", source, "--out", work / "refused.raw", status=1)

    # What all of the same voxels have to come to.
    whole.tofile(work / "plain.raw")
    plain = work / "plain.raw:{}x{}x{}".format(*SIDES)
    wanted = np.fromfile(segment(plain)[0], "<f4").reshape(2, *SIDES)
    assert np.allclose(wanted.sum(0), 1, atol=1e-5)

    # Zarr, 2 and 3: known compressors by what comes out, the others by what is said.
    own, chunks = numcodecs, (3, 7, 40)
    codecs = zarr.codecs
    read = [(2, None), (2, own.Zlib(6)), (2, own.GZip(3)), (2, own.Zstd(3)), *((2, own.Blosc(name, shuffle=shuffle))
            for name in ("lz4", "zstd", "zlib", "blosclz") for shuffle in (0, 1, 2)),
            (3, None), (3, codecs.GzipCodec()), (3, codecs.ZstdCodec(level=2, checksum=True)), (3, codecs.BloscCodec(cname="lz4hc"))]
    for number, (version, compressor) in enumerate(read):
        path = work / f"read{number}.zarr"
        zarr.create_array(str(path), data=whole, chunks=chunks, zarr_format=version, compressors=compressor)
        assert np.array_equal(np.fromfile(segment(path)[0], "<f4").reshape(wanted.shape), wanted), (version, compressor)
    for number, (version, compressor, name) in enumerate(((2, own.BZ2(), "bz2"), (2, own.LZMA(), "lzma"), (2, own.LZ4(), "lz4"))):
        path = work / f"refused{number}.zarr"
        zarr.create_array(str(path), data=whole, chunks=chunks, zarr_format=version, compressors=compressor)
        assert f"compression with '{name}'" in told_of(path), name
    zarr.create_array(str(work / "sharded.zarr"), data=whole, chunks=(1, 8, 40), shards=(2, 16, 40), zarr_format=3)
    assert "sharding_indexed" in told_of(work / "sharded.zarr")
    turned = None
    for number, (kind, order) in enumerate((("<u2", "C"), (">u2", "C"), ("<u2", "F"), (">u2", "F"))):
        path = work / f"turned{number}.zarr"
        zarr.create_array(str(path), data=whole.astype(kind) * 257, chunks=chunks, zarr_format=2, order=order)
        got = np.fromfile(segment(path)[0], "<f4").reshape(wanted.shape)
        turned = got if turned is None else turned
        assert np.allclose(got, wanted, atol=1e-4) and np.array_equal(got, turned), (kind, order)

    # HDF5: contiguous, and chunks with the library's filters.
    for number, filters in enumerate(({}, {"chunks": (2, 3, 33)}, {"chunks": (5, 40, 7), "compression": "gzip", "shuffle": True},
                                      {"chunks": (1, 9, 9), "fletcher32": True}, {"chunks": (3, 40, 33), "scaleoffset": 0})):
        path = work / f"read{number}.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("a/b", data=whole, **filters)
        assert np.array_equal(np.fromfile(segment(f"{path}:a/b")[0], "<f4").reshape(wanted.shape), wanted), filters
    with h5py.File(work / "lzf.h5", "w") as file:
        file.create_dataset("volume", data=whole, chunks=(5, 8, 8), compression="lzf")
    assert "required filter 'lzf' is not registered" in told_of(work / "lzf.h5")

    # TIFF: strips, tiles, zlib, large offsets, either order of bytes; ImageJ's single page with bare slices behind it.
    for number, how_ in enumerate(({}, {"compression": "zlib"}, {"compression": "zlib", "rowsperstrip": 7}, {"tile": (16, 32)},
                                   {"tile": (32, 16), "compression": "zlib"}, {"bigtiff": True}, {"byteorder": ">"},
                                   {"imagej": True, "metadata": {"axes": "ZYX"}},
                                   {"imagej": True, "truncate": True, "metadata": {"axes": "ZYX"}})):
        path = work / f"read{number}.tif"
        tifffile.imwrite(path, whole, photometric="minisblack", **how_)
        assert np.array_equal(np.fromfile(segment(path)[0], "<f4").reshape(wanted.shape), wanted), how_
    tifffile.imwrite(work / "channels.tif", whole, photometric="minisblack", imagej=True)      # so ImageJ's metadata have it
    assert f"has {SIDES[0]} channels" in told_of(work / "channels.tif")
    deep = (whole.astype("u2") * 257)
    for number, how_ in enumerate(({"byteorder": ">"}, {"imagej": True, "truncate": True, "byteorder": ">", "metadata": {"axes": "ZYX"}})):
        path = work / f"deep{number}.tif"
        tifffile.imwrite(path, deep, photometric="minisblack", **how_)
        assert np.allclose(np.fromfile(segment(path)[0], "<f4").reshape(wanted.shape), wanted, atol=1e-5), how_
    assert len(tifffile.TiffFile(work / "deep1.tif").pages) == 1

    # Damaged: cut off, and overwritten in the middle.
    (work / "cut.tif").write_bytes((work / "read1.tif").read_bytes()[:2000])
    (work / "cut2.tif").write_bytes((work / "deep1.tif").read_bytes()[:-100])
    (work / "cut.h5").write_bytes((work / "read2.h5").read_bytes()[:3000])
    spoilt = bytearray((work / "read2.h5").read_bytes())
    spoilt[-3000:-1000] = bytes(2000)
    (work / "spoilt.h5").write_bytes(spoilt)
    for name in ("cut.tif", "cut2.tif", "cut.h5", "spoilt.h5:a/b"):
        told = told_of(work / name)
        assert name.split(":")[0] in told and told.count("stargrad: ") == 1, (name, told)
    for number, (version, compressor) in enumerate(read):
        if compressor is None:
            continue
        path = next(p for p in sorted((work / f"read{number}.zarr").rglob("*")) if p.is_file() and "zarr.json" not in p.name
                    and p.name[0] != ".")
        data = path.read_bytes()
        for bad in (data[:len(data) // 2], b"\0" * len(data), data[:1]):
            path.write_bytes(bad)
            told = told_of(work / f"read{number}.zarr")
            assert str(path) in told and told.count("stargrad: ") == 1, (version, compressor, told)

    # What is written, they read.
    array = zarr.open(str(segment(plain, work / "out.zarr")[0]), mode="r")
    assert array.shape == wanted.shape and array.dtype == "f4" and array.chunks == wanted.shape and np.array_equal(array[:], wanted)
    with h5py.File(segment(plain, work / "out.h5")[0]) as file:
        assert file["volume"].shape == wanted.shape and np.array_equal(file["volume"][:], wanted)
    bytes_ = zarr.open(str(segment(plain, work / "bytes.zarr", dtype="u8")[0]), mode="r")
    assert bytes_.dtype == "u1" and np.abs(bytes_[:] - 255 * wanted).max() <= 0.5 + 1e-3
    large = np.random.default_rng(2).integers(0, 256, (17, 20, 150), dtype="u1")
    zarr.create_array(str(work / "large.zarr"), data=large, chunks=(17, 20, 150))
    array = zarr.open(str(segment(work / "large.zarr", work / "blocks.zarr")[0]), mode="r")
    assert array.chunks == (2, 16, 20, 128) and np.allclose(array[:].sum(0), 1, atol=1e-5)
    assert json.loads((work / "blocks.zarr/.zarray").read_text())["compressor"]["id"] == "zstd"


if __name__ == "__main__":
    main(globals())
