"""Runs StableHLO modules on XLA's CPU devices: FOLDER...

Each folder has modules 0.mlir, 0.mlir.json (exporting::DescribeStableHlo), ...,
steps.txt with the number of the module of each step, a line each, and
in.safetensors: "variable/NAME" before the first step, and for each step
"STEP/NAME", [replicas, ...], of every other argument. It gets out.safetensors:
"STEP/NAME" and "variable/NAME" after the last step, both [replicas, ...].
Results that a module calls the same on all replicas must be.
"""

import json
import os
import pathlib
import struct
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = " ".join([
    "--xla_force_host_platform_device_count=8",
    # the tests' tensors are small: threads and fast code do not pay
    "--xla_cpu_multi_thread_eigen=false",
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    # what is stored as bf16 is rounded to bf16
    "--xla_allow_excess_precision=false",
    os.environ.get("XLA_FLAGS", "")])

import jax
import ml_dtypes
import numpy as np
from jaxlib import _jax, xla_client

jax.config.update("jax_enable_x64", True)

DTYPES = {"F32": np.float32, "F64": np.float64, "BF16": ml_dtypes.bfloat16,
          "U8": np.uint8, "I32": np.int32, "I64": np.int64, "BOOL": np.bool_}


def read(path):
    """Tensors by name. The package safetensors has no bf16 in numpy."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    body = memoryview(data)[8 + size:]
    return {name: np.frombuffer(
        body[slice(*entry["data_offsets"])],
        DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()}


def write(path, tensors):
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    # larger elements first, so that all are aligned
    ordered = sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize)
    header, offset = {}, 0
    for name, value in ordered:
        end = offset + value.nbytes
        header[name] = {"dtype": names[value.dtype], "shape": value.shape,
                        "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, value in ordered:
            file.write(value.tobytes())


class Module:
    """A compiled module on the first devices, one per replica."""

    def __init__(self, path):
        self.description = json.loads(
            path.with_suffix(".mlir.json").read_text())
        count = self.description["num_replicas"]
        self.devices = jax.devices()[:count]
        options = xla_client.CompileOptions()
        options.num_replicas = count
        options.num_partitions = 1
        options.device_assignment = xla_client.DeviceAssignment.create(
            np.arange(count).reshape(count, 1))
        self.executable = self.devices[0].client.compile_and_load(
            path.read_bytes(),
            _jax.DeviceList(tuple(self.devices)), options)
        self.mesh = jax.sharding.Mesh(np.array(self.devices), ("replica",))

    def place(self, values):
        """Values [replicas, ...], one for each device."""
        # a scalar has no axis to divide: a leading one is joined to the first
        shards = [jax.device_put(v, d) for v, d in zip(values, self.devices)]
        rank = values.ndim - 1
        if rank == 0:
            sharding = jax.sharding.NamedSharding(
                self.mesh, jax.sharding.PartitionSpec())
            shape = ()
        else:
            sharding = jax.sharding.NamedSharding(
                self.mesh, jax.sharding.PartitionSpec("replica"))
            shape = (len(values) * values.shape[1],) + values.shape[2:]
        return jax.make_array_from_single_device_arrays(shape, sharding, shards)

    def step(self, arguments):
        results = self.executable.execute_sharded(arguments)
        return [np.stack([np.asarray(x) for x in shards])
                for shards in results.disassemble_into_single_device_arrays()]


def run(folder):
    steps = [int(line) for line in (folder / "steps.txt").read_text().split()]
    modules = [Module(folder / f"{i}.mlir") for i in range(max(steps) + 1)]
    given = read(folder / "in.safetensors")
    count = len(modules[0].devices)
    variables = {name.removeprefix("variable/"): np.repeat(x[None], count, 0)
                 for name, x in given.items() if name.startswith("variable/")}
    out = {}
    for step, number in enumerate(steps):
        module = modules[number]
        values = module.step([module.place(
            variables[a["name"]] if a["kind"] == "variable"
            else given[f"{step}/{a['name']}"])
            for a in module.description["arguments"]])
        for result, value in zip(module.description["results"], values):
            name = result["name"]
            if not result["per_replica"] and not all(
                    v.tobytes() == value[0].tobytes() for v in value):
                sys.exit(f"{folder}: '{name}' differs between replicas")
            if result["kind"] == "variable":
                variables[name] = value
            else:
                out[f"{step}/{name}"] = value
    out.update({"variable/" + name: v for name, v in variables.items()})
    write(folder / "out.safetensors", out)


for argument in sys.argv[1:]:
    try:
        run(pathlib.Path(argument))
    except Exception as error:  # which module it was
        sys.exit(f"{argument}: {error}")
