"""Programs of a build folder or of a bundle (bundle.py): where they lie, and the environment that
they need."""

import json
import os
import pathlib
import platform
import subprocess
import sys

TOOLKIT_LIBRARIES = "/usr/local/cuda/lib64"


def manifest(root):
    """What a bundle says of itself; None for sources."""
    path = root / "MANIFEST.json"
    return json.loads(path.read_text()) if path.exists() else None


def check_host(root):
    """A bundle's programs want the processor and the C library that they were built for."""
    said = manifest(root)
    own = platform.libc_ver()[1]
    number = [tuple(map(int, v.split("."))) for v in (own, said["glibc"])]
    if platform.machine() != said["machine"] or number[0] < number[1]:
        sys.exit(f"{root}: the bundle is for {said['machine']} with glibc {said['glibc']} or "
                 f"newer; this is {platform.machine()} with {own}")


def program_folders(root, build):
    """Folders of the programs and of the tests: a bundle's one, or those of `build`."""
    if manifest(root):
        return root / "bin", root / "bin"
    return build / "bin", build / "tests"


def python_library_folders(python):
    """Folders of NVIDIA's wheels of a Python, which hold cuDNN, NCCL and others."""
    found = subprocess.run(
        [python, "-c", "import nvidia; print(*nvidia.__path__, sep='\\n')"],
        capture_output=True, text=True, check=False).stdout.splitlines()
    return [str(folder) for path in found
            for folder in sorted(pathlib.Path(path).glob("*/lib"))]


def environment(root, python):
    """This process's environment with the libraries of a bundle, of `python` and of the
    toolkit, and a bundle's models."""
    result = dict(os.environ)
    folders = []
    if manifest(root):
        folders.append(str(root / "lib"))
        result["REPLICANT_SUITE_MODELS"] = str(root / "models")
    folders += python_library_folders(python)
    folders += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    result["LD_LIBRARY_PATH"] = ":".join([*folders, TOOLKIT_LIBRARIES])
    return result
