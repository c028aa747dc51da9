"""PyTorch's own Python environment, build/torch_venv, for goldens and
benchmarks. Nothing else needs it; scripts/setup does not make it.

Importing PyTorch needs CUDA's libraries even on a CPU. If the CUDA 13 toolkit is
on the library path, only the libraries that it lacks are installed; otherwise all
of them are (several GB).
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build/torch_venv"
TORCH = "torch==2.15.0"
PACKAGES = [
    # the newest torchvision belongs to the previous release; its models work
    TORCH, "torchvision==0.29.2", "pillow==13.0.0", "numpy==2.4.6", "safetensors==0.8.0", "pyyaml==6.0.3",
    "sympy==1.14.0", "networkx==3.6.1", "jinja2==3.1.6", "markupsafe==3.0.4",
    "mpmath==1.4.1", "fsspec==2026.9.0", "filelock==4.2.11",
    "typing_extensions==4.16.0", "setuptools==66.1.1",
    "nvidia-cufile==1.20.0.107", "nvidia-cusparselt-cu13==0.10.0",
    "nvidia-nvshmem-cu13==3.8.0", "nvidia-nccl-cu13==2.30.7",
]


def python():
    """The environment's interpreter; makes the environment if needed."""
    interpreter = FOLDER / "bin/python"
    stamp = FOLDER / ".complete"
    if stamp.exists() and stamp.read_text() == "\n".join(PACKAGES):
        return interpreter
    pip = [interpreter, "-m", "pip", "install", "-q"]
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    subprocess.run([*pip, "--no-deps", *PACKAGES], check=True)
    if subprocess.run([interpreter, "-c", "import torch"], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        subprocess.run([*pip, TORCH], check=True)
    stamp.write_text("\n".join(PACKAGES))
    return interpreter


def run_here():
    """Starts the program again with that interpreter, unless it runs there."""
    interpreter = python()
    if pathlib.Path(sys.prefix).resolve() != FOLDER.resolve():
        os.execv(interpreter, [str(interpreter), *sys.argv])


def adam_options():
    """Adam's fastest form on the default device: fused, and on a GPU with its
    state there, so that a CUDA graph can hold it."""
    import torch
    return {"fused": True, "capturable": torch.get_default_device().type == "cuda"}


def bf16(is_on):
    """The context of forward passes: autocast to bf16 if `is_on`."""
    import torch
    return torch.autocast(torch.get_default_device().type, torch.bfloat16, enabled=is_on)
