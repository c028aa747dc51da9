"""One case of bench_learner in PyTorch, for bench/run/learner.

    learner_peer.py NAME eager|compile|autotune SECONDS [DEVICE]
    learner_peer.py NAME eager|compile memory

Warms up, then prints one JSON line for every line that it reads; or makes ten
steps and prints the resident memory after the first and after the tenth. DEVICE is
cpu, or cuda. autotune is torch.compile's max-autotune, with CUDA graphs.
"""

import functools
import json
import os
import pathlib
import sys

import torch
import yaml

# before the models, which make constants
DEVICE = sys.argv[4] if len(sys.argv) > 4 else "cpu"
torch.set_default_device(DEVICE)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts/goldens"))
import peer_timing  # noqa: E402
import torch_d4pg  # noqa: E402
import torch_resnet50  # noqa: E402
import torch_sngan  # noqa: E402

# a compiled step of a GPU is compiled again for what its first runs find out
COMPILED_RUNS = 10
ACTOR_WORKLOADS = {"nature": "d4pg-nature-128", "drq": "d4pg-drq-256"}


def load(name):
    path = ROOT / "bench/workloads" / f"{name}.yaml"
    return yaml.safe_load(path.read_text())


IMAGE_MODELS = {"resnet50": torch_resnet50, "sngan": torch_sngan}


def learner_step(name, is_compiled, precision):
    workload = load(name)
    options = {"compile": is_compiled, "autocast": precision == "bf16"}
    generator = torch.Generator(DEVICE).manual_seed(1)
    module = IMAGE_MODELS.get(name.split("-")[0])
    if module is not None:
        learner = module.Learner(workload, torch.float32, **options)
        batch = module.random_batch(workload, generator, torch.float32)
        return lambda: learner.step(**batch)
    learner = torch_d4pg.Learner(workload, torch.float32, **options)
    batch = torch_d4pg.random_batch(workload, torch.float32, generator)
    return lambda: learner.step(*batch)


def actor_step(name, is_compiled, precision):
    assert precision == "f32", precision
    kind, batch = name.rsplit("-", 1)
    workload = load(ACTOR_WORKLOADS[kind])
    agent = torch_d4pg.Agent(workload)
    agent.to(memory_format=torch.channels_last)
    x = torch.randint(0, 256, (int(batch), *workload["observation"]),
                      dtype=torch.uint8)

    def act(pixels):
        return torch.tanh(agent.policy(agent.encoder(pixels, torch.float32)))

    if is_compiled:
        act = torch.compile(act)

    def step():
        with torch.inference_mode():
            return act(x)
    return step


def resident_memory():
    """Resident memory of this process in MB."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def measure_memory(step, steps=10):
    step()
    first = resident_memory()
    for _ in range(1, steps):
        step()
    last = resident_memory()
    return {"first_mb": first, "tenth_mb": last, "growth_mb": last - first}


def on_device(step):
    """The step until the device is done with it."""
    if DEVICE == "cpu":
        return step

    def synchronized():
        step()
        torch.cuda.synchronize()
    return synchronized


def main():
    name, mode, seconds = sys.argv[1:4]
    if mode == "autotune":
        torch.compile = functools.partial(torch.compile, mode="max-autotune")
    group, case, precision, threads = name.split("/")
    torch.set_num_threads(int(threads.removeprefix("threads-")))
    torch.manual_seed(1)
    # otherwise its f32 convolutions use TF32 on GPUs
    torch.backends.cudnn.allow_tf32 = False
    make = learner_step if group == "learner" else actor_step
    step = on_device(make(case, mode != "eager", precision))
    if seconds == "memory":
        print(json.dumps(measure_memory(step)))
        return
    if DEVICE == "cuda" and mode != "eager":
        for _ in range(COMPILED_RUNS):
            step()
    peer_timing.answer(step, float(seconds))


if __name__ == "__main__":
    main()
