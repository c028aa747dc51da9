"""The other half of interop_test.cc: files of the safetensors package.

interop.py make FOLDER    writes files for Replicant to read
interop.py check FOLDER   reads the files that Replicant wrote

Both sides know the arrays by heart: element i in row-major order is i, modulo
251 for u8 and modulo 2 for bool.
"""

import json
import pathlib
import struct
import sys

import numpy as np
import safetensors
import safetensors.numpy

DTYPES = {"f32": "f4", "f64": "f8", "u8": "u1", "i32": "i4", "i64": "i8",
          "bool": "?"}
SHAPES = {"scalar": (), "vector": (5,), "empty": (0, 3), "cube": (2, 3, 4)}


def counting(dtype, shape):
    count = np.arange(int(np.prod(shape)))
    modulus = {"u8": 251, "bool": 2}.get(dtype, 1 << 62)
    return (count % modulus).astype(DTYPES[dtype]).reshape(shape)


def arrays():
    return {f"{dtype}_{shape}": counting(dtype, SHAPES[shape])
            for dtype in DTYPES for shape in SHAPES}


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)


def bfloat16_bits(count):
    """Whole numbers to 256 are exact in the upper half of a float32."""
    return (np.arange(count, dtype="f4").view("u4") >> 16).astype("u2")


def spec(dtype, array):
    """numpy has no bfloat16, so its bits are passed under another name."""
    return safetensors.TensorSpec(dtype=dtype, shape=array.shape,
                                  data_ptr=array.ctypes.data,
                                  data_len=array.nbytes)


def make(folder):
    safetensors.numpy.save_file(arrays(), folder / "numpy.safetensors",
                                metadata={"made_by": "safetensors"})
    bits = bfloat16_bits(4)
    safetensors.serialize_file(
        {"b": spec("bfloat16", bits), "h": spec("float16", bits)},
        folder / "half.safetensors")

    # types that Replicant converts, and the values that it makes of them
    codes = np.arange(1 << 16, dtype="u2").view("f2")
    given, wanted = {"f2": codes}, {"f2": codes.astype("f4")}
    for dtype, wide in {"i1": "i4", "i2": "i4", "u2": "i4", "u4": "i8"}.items():
        limits = np.iinfo(dtype)
        given[dtype] = np.array([limits.min, 0, 1, limits.max], dtype)
        wanted[dtype] = given[dtype].astype(wide)
    given["u8"] = np.array([0, 1, (1 << 63) - 1], "u8")
    wanted["u8"] = given["u8"].astype("i8")
    safetensors.numpy.save_file(given, folder / "narrow.safetensors")
    safetensors.numpy.save_file(wanted, folder / "wide.safetensors")


def check(folder):
    expected = arrays()
    path = folder / "numpy.safetensors"
    loaded = safetensors.numpy.load_file(path)
    assert sorted(loaded) == sorted(expected)
    for name, array in expected.items():
        assert same(loaded[name], array), name
    # the reference writes the same bytes
    metadata = {"made_by": "safetensors"}
    ours = path.read_bytes()
    theirs = safetensors.numpy.save(expected, metadata=metadata)
    length = struct.unpack("<Q", ours[:8])[0]
    assert json.loads(ours[8:8 + length])["__metadata__"] == metadata
    assert ours == theirs

    half = safetensors.deserialize((folder / "half.safetensors").read_bytes())
    [(name, tensor)] = half
    assert name == "b" and tensor["dtype"] == "BF16", half
    assert tensor["shape"] == [4], half
    assert bytes(tensor["data"]) == bfloat16_bits(4).tobytes(), half


{"make": make, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
