"""The bundle of scripts/gpu/check: programs with their libraries, goldens and the script, for a
machine that has a driver, CUDA 13, cuDNN 9, NCCL and Python but no packages and no network.
scripts/gpu/check_bundle rehearses it."""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# its only folder
NAME = "replicant_gpu_check"
TESTS = ("op_parity_test", "torch_ops_test", "torch_d4pg_test", "torch_models_test",
         "torch_bf16_test", "gpu_test", "planted_errors")
PROGRAMS = ("bench_learner", "fleet", "actor", "evaluator", "learner", "replay")
DATA = ("configs", "tests/golden/torch", "bench/workloads", "scripts/gpu/check",
        "scripts/gpu/bundled.py", "scripts/gpu/peers.py", "bench/run/learning",
        "bench/run/learning_curves.py", "bench/results/learning/published.csv",
        "bench/run/learner_peer.py", "bench/run/peer_timing.py",
        "scripts/goldens/torch_d4pg.py", "scripts/goldens/torch_environment.py",
        "scripts/goldens/torch_resnet50.py", "scripts/goldens/torch_sngan.py")
# of the suite's models: the twelve tasks of bench/results
MODELS = ("ball_in_cup.xml", "cartpole.xml", "cheetah.xml", "finger.xml", "hopper.xml",
          "pendulum.xml", "reacher.xml", "walker.xml", "common")
# the target's own, which the driver's libraries fit
SYSTEM_LIBRARIES = re.compile(r"ld-linux|lib(c|m|dl|rt|pthread|resolv|util)\.so")
MAX_BYTES = 60_000_000


def needed_libraries(programs):
    """Shared libraries of the programs, by name, without the system's."""
    libraries = {}
    for program in programs:
        output = subprocess.run(["ldd", program], capture_output=True, text=True,
                                check=True).stdout
        for name, path in re.findall(r"(\S+) => (\S+)", output):
            if path == "not":
                sys.exit(f"gpu/check: {program} needs {name}, which is not there")
            if not SYSTEM_LIBRARIES.match(name):
                libraries[name] = path
    return libraries


def suite_models():
    """The Control Suite's folder of models, as the programs find it."""
    folders = [os.environ.get("REPLICANT_SUITE_MODELS")] + sorted(
        map(str, ROOT.glob("build/venv/lib/python3*/site-packages/dm_control/suite")))
    for folder in filter(None, folders):
        if pathlib.Path(folder).is_dir():
            return pathlib.Path(folder)
    sys.exit("gpu/check: no models of the Control Suite; hint: run scripts/setup")


def strip(path):
    subprocess.run(["strip", "--strip-unneeded", path], check=True)


def pack(target, build, cases):
    """Writes the bundle to the file `target` from the programs in the folder `build`, where
    bench_learner must have the `cases`."""
    target, build = pathlib.Path(target), pathlib.Path(build).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    programs = [build / "tests" / name for name in TESTS]
    programs += [build / "bin" / name for name in PROGRAMS]
    missing = [str(p) for p in programs if not p.exists()]
    if missing:
        sys.exit(f"gpu/check: not built: {', '.join(missing)}")
    listed = subprocess.run([build / "bin/bench_learner", "--list", "--backend", "cuda"], text=True,
                            capture_output=True, check=True).stdout
    unknown = [case for case in cases if f"{case}/" not in listed]
    if unknown:
        sys.exit(f"gpu/check: bench_learner has no case {', '.join(unknown)}")
    models = suite_models()
    with tempfile.TemporaryDirectory(dir=build) as folder:
        bundle = pathlib.Path(folder) / NAME
        for part in ("bin", "lib", "models"):
            (bundle / part).mkdir(parents=True)
        for program in programs:
            shutil.copy(program, bundle / "bin")
            strip(bundle / "bin" / program.name)
        for part in MODELS:
            (shutil.copytree if (models / part).is_dir() else shutil.copy)(
                models / part, bundle / "models" / part)
        for name, path in needed_libraries(programs).items():
            shutil.copy(os.path.realpath(path), bundle / "lib" / name)
            strip(bundle / "lib" / name)
        for part in DATA:
            source, copy = ROOT / part, bundle / part
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy)
            else:
                shutil.copy(source, copy)
        commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"],
                                capture_output=True, text=True, check=False)
        (bundle / "MANIFEST.json").write_text(json.dumps(
            {"commit": commit.stdout.strip(), "glibc": platform.libc_ver()[1],
             "machine": platform.machine()}, indent=1))
        # the default level takes over three times as long
        with tarfile.open(target, "w:xz", preset=1) as archive:
            archive.add(bundle, NAME)
    size = target.stat().st_size
    print(f"gpu/check: {target}: {size / 1e6:.1f} MB")
    if size > MAX_BYTES:
        sys.exit(f"gpu/check: larger than {MAX_BYTES / 1e6:.0f} MB")


