#!/usr/bin/env python3
"""Make images/*, small images with EXIF orientations, and images.txt, their pixels as Pillow and torchvision read them; the tests do not
run this.

images/FORMAT-O.*    5 x 3 pixels with the EXIF orientation O
images/large.png     23 x 17 pixels
images.txt           "NAME W H" and the W x H x 3 values of ImageOps.exif_transpose; "resize S C" and the C x C x 3 values of large.png
                     after torchvision's Resize(S) and CenterCrop(C)
"""
import pathlib

import numpy
from PIL import Image, ImageOps
from torchvision import transforms

HERE = pathlib.Path(__file__).parent
FOLDER = HERE / "images"
FORMATS = {"jpg": {"quality": 95, "subsampling": 0}, "png": {}, "webp": {"lossless": True, "exact": True}}


def values(image):
    return " ".join(map(str, numpy.asarray(image.convert("RGB")).flatten().tolist()))


def main():
    FOLDER.mkdir(exist_ok=True)
    draw, lines = numpy.random.default_rng(46), []
    small = Image.fromarray(draw.integers(0, 256, (3, 5, 3)).astype("uint8"))
    for name, options in FORMATS.items():
        for orientation in range(1, 9) if name == "png" else (3, 6):
            path = FOLDER / f"{name}-{orientation}.{name}"
            exif = Image.Exif()
            exif[0x010f] = "camera"
            exif[0x0112] = orientation
            small.save(path, exif=exif, **options)
            upright = ImageOps.exif_transpose(Image.open(path))
            lines += [f"{path.name} {upright.width} {upright.height}", values(upright)]
    large = Image.fromarray(draw.integers(0, 256, (17, 23, 3)).astype("uint8"))
    large.save(FOLDER / "large.png")
    for scaled, side in ((12, 12), (14, 12), (16, 9), (17, 17), (20, 13), (30, 24)):
        crop = transforms.Compose([transforms.Resize(scaled), transforms.CenterCrop(side)])(large)
        lines += [f"resize {scaled} {side}", values(crop)]
    (HERE / "images.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
