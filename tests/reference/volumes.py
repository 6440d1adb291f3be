#!/usr/bin/env python3
"""Make the volumes of tests/reference/volumes with other libraries: voxel (z,y,x) is (100 z + 10 y + x) % 251, of 5x7x9. Needs
zarr 3, h5py, tifffile, numcodecs, Pillow; the tests do not run this."""
import pathlib
import shutil

import h5py
import numpy as np
import tifffile
import zarr
from PIL import Image
from numcodecs import Blosc, Zlib, Zstd
from zarr import codecs

DATA = pathlib.Path(__file__).parent / "volumes"
z, y, x = np.mgrid[0:5, 0:7, 0:9]
VOXELS = (100 * z + 10 * y + x) % 251


def store(name, dtype, version, chunks, **how):
    array = zarr.create_array(str(DATA / name), shape=VOXELS.shape, dtype=dtype, chunks=chunks, zarr_format=version, **how)
    array[:] = VOXELS.astype(dtype)


shutil.rmtree(DATA, ignore_errors=True)
DATA.mkdir()
for name, compressor in (("none", None), ("zlib", Zlib(1)), ("zstd", Zstd(1)), ("blosc", Blosc("lz4", shuffle=Blosc.SHUFFLE))):
    store(f"v2-{name}", "u2", 2, (3, 4, 5), compressors=compressor)
store("v2-slash", "f4", 2, (5, 7, 9), compressors=Zlib(1), chunk_key_encoding={"name": "v2", "separator": "/"})
store("v2-lz4", "u1", 2, (3, 4, 5), compressors=__import__("numcodecs").LZ4())
store("v2-fortran", "u1", 2, (3, 4, 5), compressors=None, order="F")
for name, compressor in (("none", None), ("gzip", codecs.GzipCodec()), ("zstd", codecs.ZstdCodec()), ("blosc", codecs.BloscCodec())):
    store(f"v3-{name}", "i4", 3, (3, 4, 6), compressors=compressor)
store("v3-sharded", "u1", 3, (1, 7, 9), shards=(5, 7, 9), compressors=None)
with h5py.File(DATA / "chunked.h5", "w") as file:
    file.create_dataset("raw", data=VOXELS.astype("u1"), chunks=(2, 3, 5), compression="gzip", shuffle=True)
with h5py.File(DATA / "two.h5", "w") as file:
    file.create_dataset("a/raw", data=VOXELS.astype("f8"))
    file.create_dataset("b", data=np.zeros((2, 2), "u1"))
    file.create_dataset("c", data=np.zeros((2, 2), "u1"))
with h5py.File(DATA / "links.h5", "w") as file:
    file.create_dataset("deep/raw", data=VOXELS.astype("i2"))
    file["again"] = h5py.SoftLink("/deep/raw")
with h5py.File(DATA / "dangling.h5", "w") as file:
    file["raw"] = h5py.ExternalLink("nowhere.h5", "/raw")
tifffile.imwrite(DATA / "strips.tif", VOXELS.astype("u1"), rowsperstrip=3, photometric="minisblack")
tifffile.imwrite(DATA / "deflate.tif", VOXELS.astype("u2"), compression="zlib", photometric="minisblack")
tifffile.imwrite(DATA / "tiles.tif", VOXELS.astype("f4"), tile=(16, 16), photometric="minisblack")
tifffile.imwrite(DATA / "bare.tif", VOXELS.astype("u2"), truncate=True, byteorder=">", photometric="minisblack")
tifffile.imwrite(DATA / "deep.tif", VOXELS.astype("u2"), volumetric=True, tile=(2, 16, 16), compression="zlib", photometric="minisblack")
CHANNELS = np.stack([VOXELS, 255 - VOXELS]).astype("u1")    # C,Z,Y,X
tifffile.imwrite(DATA / "imagej-channels.tif", CHANNELS.transpose(1, 0, 2, 3), imagej=True, metadata={"axes": "ZCYX"})
tifffile.imwrite(DATA / "channels.ome.tif", CHANNELS, metadata={"axes": "CZYX", "PhysicalSizeZ": 0.5}, photometric="minisblack")
tifffile.imwrite(DATA / "colour.tif", np.zeros((5, 7, 3), "u1"), photometric="rgb")
VOXELS.astype("<i2").tofile(DATA / "bare.raw")


def series(name, slices, first=8):
    """slice8.png, slice9.png, slice10.png, …"""
    (DATA / name).mkdir()
    for number, pixels in enumerate(slices, first):
        Image.fromarray(pixels).save(DATA / name / f"slice{number}.png")


series("png-8", VOXELS.astype("u1"))
series("png-16", VOXELS.astype("u2"))
series("png-colour", [np.zeros((7, 9, 3), "u1")])
series("png-sizes", [np.zeros((7, 9), "u1"), np.zeros((7, 8), "u1")])
