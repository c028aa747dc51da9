"""Writes images of many kinds, and beside each what Pillow makes of it.

    make_images.py FOLDER

In pixels.safetensors NAME holds the pixels of image NAME, u8 [H, W, 3]; resize
an image, and resize-N its part resize-N.txt, resized.
"""

import pathlib
import sys

import numpy as np
import safetensors.numpy
from PIL import Image

SIZE = (83, 61)


def picture(width, height):
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / 7 + k) * np.cos(y / (5 + k)) for k in range(3)]
    noise = np.random.default_rng(1).normal(0, 0.1, (height, width, 3))
    pixels = 127 + 110 * np.clip(np.stack(waves, -1) + noise, -1, 1)
    return Image.fromarray(pixels.astype(np.uint8))


def main(folder):
    arrays = {}

    def save(name, image, **options):
        image.save(folder / name, **options)
        with Image.open(folder / name) as saved:
            arrays[name] = np.asarray(saved.convert("RGB"))

    image = picture(*SIZE)
    save("rgb.jpg", image, quality=90)
    save("full_chroma.jpg", image, quality=90, subsampling=0)
    save("grey.jpg", image.convert("L"), quality=90)
    save("progressive.jpg", image, quality=90, progressive=True)
    save("cmyk.jpg", image.convert("CMYK"), quality=90)
    # without Adobe's marker, the segment APP14
    cmyk = (folder / "cmyk.jpg").read_bytes()
    begin = cmyk.index(b"\xff\xee")
    end = begin + 2 + int.from_bytes(cmyk[begin + 2:begin + 4], "big")
    (folder / "plain_cmyk.jpg").write_bytes(cmyk[:begin] + cmyk[end:])
    with Image.open(folder / "plain_cmyk.jpg") as saved:
        arrays["plain_cmyk.jpg"] = np.asarray(saved.convert("RGB"))
    save("rgb.png", image)
    save("grey.png", image.convert("L"))
    save("palette.png", image.quantize(64))
    save("bits.png", image.convert("1"))
    alpha = image.convert("RGBA")
    alpha.putalpha(image.convert("L"))
    save("alpha.png", alpha)
    save("animated.png", image, save_all=True,
         append_images=[image.rotate(90)])
    # Pillow has no conversion from 16 bits to RGB
    deep = np.asarray(image.convert("L")).astype(np.uint16) * 256 + 77
    Image.fromarray(deep).save(folder / "deep.png")
    arrays["deep.png"] = np.repeat((deep >> 8).astype(np.uint8)[..., None], 3, 2)

    save("lossy.webp", image, quality=90)
    save("rgb.webp", image, lossless=True)
    save("alpha.webp", alpha, lossless=True, exact=True)
    save("animated.webp", image, lossless=True, save_all=True,
         append_images=[image.rotate(90)])
    for name, converted, options in (
            ("rgb", image, {}), ("lzw", image, {"compression": "tiff_lzw"}),
            ("deflate", image, {"compression": "tiff_adobe_deflate"}),
            ("jpeg", image, {"compression": "jpeg", "quality": 95}),
            ("grey", image.convert("L"), {}), ("bits", image.convert("1"), {}),
            ("palette", image.quantize(64), {}), ("alpha", alpha, {}),
            ("cmyk", image.convert("CMYK"), {}),
            ("pages", image, {"save_all": True,
                              "append_images": [image.rotate(90)]})):
        save(f"{name}.tif", converted, **options)
    # Pillow turns and mirrors by the tag 274
    for name, orientation in ("mirrored", 2), ("turned", 6):
        image.save(folder / f"{name}.tif", tiffinfo={274: orientation})
        arrays[f"{name}.tif"] = np.asarray(image)
    Image.fromarray(deep).save(folder / "deep.tif")
    arrays["deep.tif"] = arrays["deep.png"]
    for name in "rgb", "grey", "bits", "palette":
        with Image.open(folder / f"{name}.png") as saved:
            save(f"{name}.bmp", saved)
    save("rgb.ppm", image)
    save("grey.pgm", image.convert("L"))
    values = np.asarray(image.convert("L"))
    (folder / "deep.pgm").write_bytes(
        b"P5\n# a comment\n83 61\n65535\n" + deep.astype(">u2").tobytes())
    arrays["deep.pgm"] = arrays["deep.png"]
    (folder / "text.ppm").write_text("P3 83 61 100\n" + "\n".join(
        f"{v * 100 // 255} 0 100" for v in values.ravel()))
    with Image.open(folder / "text.ppm") as saved:
        arrays["text.ppm"] = np.asarray(saved.convert("RGB"))

    image = picture(301, 203)
    arrays["resize"] = np.asarray(image)
    boxes = [((0, 0, 301, 203), (64, 64)), ((10, 20, 200, 180), (224, 224)),
             ((0.25, 3.5, 100.75, 33.25), (31, 47)), ((290, 190, 301, 203), (8, 5)),
             ((0, 0, 301, 203), (1, 1)), ((40, 40, 168, 168), (128, 128))]
    for i, (box, size) in enumerate(boxes):
        small = image.resize(size, Image.Resampling.BILINEAR, box=box)
        arrays[f"resize-{i}"] = np.asarray(small)
        (folder / f"resize-{i}.txt").write_text(" ".join(map(str, box)))
    safetensors.numpy.save_file(arrays, folder / "pixels.safetensors")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
