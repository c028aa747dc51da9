"""Writes data sets as they are found in the wild, beside a plain one.

    make_left_out.py FOLDER

FOLDER/plain.tar has four images of two classes. So has, unless its test says
otherwise, every other NAME.tar and the folder `tree`.
"""

import io
import pathlib
import subprocess
import sys

from PIL import Image

BLOCK = 512


def jpeg(shade, extension="JPEG"):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, shade, shade)).save(file, extension)
    return file.getvalue()


def header(name, size, kind="0", link="", magic=b"ustar\x0000", tail=b""):
    block = bytearray(BLOCK)
    block[0:len(name)] = name.encode()
    block[100:124] = b"0000644\x000000000\x000000000\x00"
    block[124:136] = b"%011o\x00" % size
    block[136:148] = b"00000000000\x00"
    block[148:156] = b" " * 8
    block[156:157] = kind.encode()
    block[157:157 + len(link)] = link.encode()
    block[257:257 + len(magic)] = magic
    block[345:345 + len(tail)] = tail
    block[148:156] = b"%06o\x00 " % sum(block)
    return bytes(block)


def padded(data):
    return data + bytes(-len(data) % BLOCK)


def member(name, data=b"", **options):
    return header(name, len(data), **options) + padded(data)


def pax(**records):
    text = b""
    for key, value in records.items():
        key = key.replace("__", ".")
        length = len(f" {key}={value}\n")
        length += len(str(length + len(str(length))))
        text += f"{length} {key}={value}\n".encode()
    return member("PaxHeaders/x", text, kind="x")


END = bytes(2 * BLOCK)
IMAGES = [jpeg(60 * i) for i in range(4)]


def example(i, before=b"", between=b""):
    """Image i of class i // 2."""
    return (before + member(f"{i}.jpg", IMAGES[i]) + between
            + member(f"{i}.cls", str(i // 2).encode()))


def main(root):
    def save(name, *parts):
        (root / name).write_bytes(b"".join(parts) + END)

    save("plain.tar", *map(example, range(4)))
    # what macOS's tar and Finder add
    junk = b"\0\5\26\7" + bytes(159)
    save("mac.tar", *(
        member(f"._{i}.jpg", junk) + example(
            i, between=member(f"._{i}.cls", junk) + member(".DS_Store", junk))
        for i in range(4)))
    save("folders.tar", *(
        example(i, between=member(f"__MACOSX/._{i}.jpg", junk)
                + member(f"PaxHeader/{i}.jpg", b"1 x\n")
                + member(f"./._{i}.jpg", junk)
                + member(".thumbnails/t.jpg", IMAGES[0])
                + member("noextension", b"x")
                + member("a/", kind="5")
                # of an incremental dump: what the folder held
                + member("a/", b"Y0.jpg\0\0", kind="D"))
        for i in range(4)))

    # links
    save("hard.tar", example(0), example(2),
         member("1.jpg", kind="1", link="0.jpg"), member("1.cls", kind="1", link="0.cls"),
         # pax lets them have their bytes, and old writers only the size
         member("3.jpg", IMAGES[3], kind="1", link="2.jpg"),
         header("3.cls", 1, kind="1", link="2.cls"))
    save("symbolic.tar", *(
        member(f"set/{i}.jpg", kind="2", link=f"../store/./{i}")
        + member(f"set/{i}.cls", kind="2", link=f"../one" if i else "zero")
        for i in range(4)),
         member("set/zero", kind="2", link="../zero"), member("zero", b"0"),
         member("one", b"1"), *(member(f"store/{i}", IMAGES[i]) for i in range(4)))
    save("lost_links.tar", *map(example, range(4)),
         member("5.jpg", kind="2", link="/etc/hostname"), member("5.cls", b"0"),
         member("6.jpg", kind="2", link="7.jpg"), member("7.jpg", kind="2", link="6.jpg"),
         member("8.jpg", kind="1", link="nowhere.jpg"))
    long_name = "long/" * 40 + "0.jpg"
    save("long_links.tar", member("@", long_name.encode() + b"\0", kind="L"),
         member("0.jpg", IMAGES[0]), member(long_name[:90], kind="5"),
         member("@", (long_name[:-4] + ".cls\0").encode(), kind="L"), member("x", b"0"),
         *map(example, range(1, 3)),
         member("@", long_name.encode() + b"\0", kind="K"),
         member("3.jpg", kind="1", link=long_name[:100]), member("3.cls", b"1"))

    # sizes and sparse files of pax; the map says that all of the file is stored
    image = IMAGES[0]
    size = len(image)
    old_map = b"%011o\x00%011o\x00" % (0, size)
    sparse_header = bytearray(bytes(41) + old_map + bytes(72 + 1)
                              + b"%011o\x00" % size)
    map_in_data = padded(f"1\n0\n{size}\n".encode())
    save("sparse.tar",
         member("0.jpg", image, kind="S", magic=b"ustar  \0", tail=bytes(sparse_header)),
         member("0.cls", b"0"),
         pax(GNU__sparse__major=1, GNU__sparse__minor=0, GNU__sparse__name="1.jpg",
             GNU__sparse__realsize=size),
         member("GNUSparseFile.0/1.jpg", map_in_data + image), member("1.cls", b"0"),
         pax(GNU__sparse__size=size, GNU__sparse__numblocks=1, GNU__sparse__map=f"0,{size}",
             GNU__sparse__name="2.jpg"),
         member("GNUSparseFile.0/2.jpg", image), member("2.cls", b"1"),
         pax(GNU__sparse__size=size, GNU__sparse__numblocks=1, GNU__sparse__offset=0,
             GNU__sparse__numbytes=size),
         member("3.jpg", image), member("3.cls", b"1"))
    save("pax_size.tar", *(
        pax(size=len(IMAGES[i])) + header(f"{i}.jpg", 0) + padded(IMAGES[i])
        + member(f"{i}.cls", str(i // 2).encode()) for i in range(4)))
    # GNU tar itself: an image with a hole behind its end
    for kind in "gnu", "pax":
        folder = root / f"holes_{kind}"
        folder.mkdir()
        with open(folder / "4.jpg", "wb") as file:
            file.write(IMAGES[0])
            file.truncate(1 << 20)
        (folder / "4.cls").write_text("0")
        subprocess.run(["tar", "--create", "--sparse", f"--format={kind}", "--file",
                        root / f"holes_{kind}.part", "--directory", folder, "4.jpg", "4.cls"],
                       check=True)
        (root / f"holes_{kind}.tar").write_bytes(
            (root / "plain.tar").read_bytes() + (root / f"holes_{kind}.part").read_bytes())

    # archives one behind the other, the first with a whole record of zeros
    (root / "concatenated.tar").write_bytes(
        example(0) + example(1) + bytes(10240) + example(2) + bytes(BLOCK)
        + example(3) + END)
    (root / "behind.tar").write_bytes((root / "plain.tar").read_bytes() + b"junk" * BLOCK)

    # members that are no image, and an example without one
    save("others.tar", *(example(i, between=member(f"{i}.json", b"{}")
                                 + member(f"{i}.seg.png", b"mask")) for i in range(4)),
         member("5.gif", b"GIF89a"), member("5.cls", b"0"), member("dev.jpg", kind="3"))

    folder = root / "shards"
    folder.mkdir()
    (folder / "A.TAR").write_bytes(example(0) + example(1) + END)
    (folder / "b.tar").write_bytes(example(2) + example(3) + END)
    (folder / "._b.tar").write_bytes(junk)
    (folder / "c.tar").write_bytes(END)
    (folder / "d.tar.gz").write_bytes(b"\x1f\x8b")
    (folder / "e.tgz").write_bytes(b"\x1f\x8b")
    (folder / "README.md").write_text("text")
    (folder / "more").mkdir()
    (root / "compressed.tar").write_bytes(b"\x1f\x8b\x08\x00" + bytes(100))

    tree = root / "tree"
    for i, name in enumerate(["finch", "heron"]):
        (tree / name / "deep").mkdir(parents=True)
        (tree / name / "1.jpg").write_bytes(IMAGES[2 * i])
        (tree / name / "deep/2.JPEG").write_bytes(IMAGES[2 * i + 1])



if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
