"""One case of bench_learner in PyTorch, for bench/run/learner.

    learner_peer.py NAME MODE SECONDS [cpu|cuda]
    learner_peer.py NAME eager|compile memory

Warms up, then prints one JSON line for every line that it reads; or makes ten
steps and prints the resident memory after the first and after the tenth. MODE is
eager, compile (torch.compile) or autotune (its max-autotune). On cuda the whole step
of these is one CUDA graph, as ours is: forward, backward, fused Adam with its
state on the device, targets. There are two more modes, launches (eager without a
graph) and reduce-overhead (torch.compile's own graphs of its parts, the rest
launched).
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

# of a GPU before its step is recorded: compiled ones are compiled again for what
# their first runs find out
WARM_UP_RUNS = 10
# torch.compile's mode; the graph of max-autotune is ours
COMPILE_MODES = {"compile": None, "reduce-overhead": "reduce-overhead",
                 "autotune": "max-autotune-no-cudagraphs"}
MODES = ("eager", "launches", *COMPILE_MODES)
WITHOUT_GRAPH = ("launches", "reduce-overhead")
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
        return torch.tanh(agent.policy(*agent.encoder(pixels, None, torch.float32)))

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


def recorded(step):
    """The step, which has warmed up, as one CUDA graph (PyTorch's notes on CUDA
    semantics, "Whole-network capture")."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay():
        graph.replay()
    # the graph does not own the memory of parameters and batch
    replay.recorded = step
    return replay


def on_device(step, mode):
    """The step until the device is done with it, as the mode launches it."""
    if DEVICE == "cpu":
        return step
    # a recording wants what has run on a stream other than the default one
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_RUNS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    if mode not in WITHOUT_GRAPH:
        step = recorded(step)

    def synchronized():
        step()
        torch.cuda.synchronize()
    return synchronized


def main():
    name, mode, seconds = sys.argv[1:4]
    if mode not in MODES:
        sys.exit(f"learner_peer: no mode {mode}; allowed: {', '.join(MODES)}")
    is_compiled = mode in COMPILE_MODES
    if is_compiled:
        torch.compile = functools.partial(torch.compile, mode=COMPILE_MODES[mode])
    group, case, precision, threads = name.split("/")
    torch.set_num_threads(int(threads.removeprefix("threads-")))
    torch.manual_seed(1)
    # otherwise its f32 convolutions use TF32 on GPUs, and its products never
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    make = learner_step if group == "learner" else actor_step
    step = on_device(make(case, is_compiled, precision), mode)
    if seconds == "memory":
        print(json.dumps(measure_memory(step)))
        return
    peer_timing.answer(step, float(seconds))


if __name__ == "__main__":
    main()
