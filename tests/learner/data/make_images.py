"""Writes images of many kinds, and beside each what Pillow makes of it.

    make_images.py FOLDER

NAME.npy, the pixels of image NAME, u8 [H, W, 3]; and resize.npy, the
image, with resize-N.npy, its part resize-N.txt resized.
"""

import pathlib
import sys

import numpy as np
from PIL import Image

SIZE = (83, 61)


def picture(width, height):
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / 7 + k) * np.cos(y / (5 + k)) for k in range(3)]
    noise = np.random.default_rng(1).normal(0, 0.1, (height, width, 3))
    pixels = 127 + 110 * np.clip(np.stack(waves, -1) + noise, -1, 1)
    return Image.fromarray(pixels.astype(np.uint8))


def save(folder, name, image, **options):
    image.save(folder / name, **options)
    with Image.open(folder / name) as saved:
        pixels = np.asarray(saved.convert("RGB"))
    np.save(folder / f"{name}.npy", pixels)


def main(folder):
    image = picture(*SIZE)
    save(folder, "rgb.jpg", image, quality=90)
    save(folder, "full_chroma.jpg", image, quality=90, subsampling=0)
    save(folder, "grey.jpg", image.convert("L"), quality=90)
    save(folder, "progressive.jpg", image, quality=90, progressive=True)
    save(folder, "cmyk.jpg", image.convert("CMYK"), quality=90)
    save(folder, "rgb.png", image)
    save(folder, "grey.png", image.convert("L"))
    save(folder, "palette.png", image.quantize(64))
    save(folder, "bits.png", image.convert("1"))
    alpha = image.convert("RGBA")
    alpha.putalpha(image.convert("L"))
    save(folder, "alpha.png", alpha)
    save(folder, "animated.png", image, save_all=True,
         append_images=[image.rotate(90)])
    # Pillow has no conversion from 16 bits to RGB
    deep = np.asarray(image.convert("L")).astype(np.uint16) * 256 + 77
    Image.fromarray(deep).save(folder / "deep.png")
    np.save(folder / "deep.png.npy", np.repeat((deep >> 8).astype(np.uint8)[..., None], 3, 2))

    image = picture(301, 203)
    np.save(folder / "resize.npy", np.asarray(image))
    boxes = [((0, 0, 301, 203), (64, 64)), ((10, 20, 200, 180), (224, 224)),
             ((0.25, 3.5, 100.75, 33.25), (31, 47)), ((290, 190, 301, 203), (8, 5)),
             ((0, 0, 301, 203), (1, 1)), ((40, 40, 168, 168), (128, 128))]
    for i, (box, size) in enumerate(boxes):
        small = image.resize(size, Image.Resampling.BILINEAR, box=box)
        np.save(folder / f"resize-{i}.npy", np.asarray(small))
        (folder / f"resize-{i}.txt").write_text(" ".join(map(str, box)))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
