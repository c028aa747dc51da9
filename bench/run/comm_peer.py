"""One all-reduce of PyTorch's gloo between processes of this machine.

    comm_peer.py COUNT RANKS

Prints "ready"; then, for every line "SECONDS" on stdin, a JSON line with the
median milliseconds of an all-reduce of COUNT floats, in place. Each process
has one thread, on a separate processor if there are enough.
"""

import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing


def measure(x, seconds):
    for _ in range(2):
        torch.distributed.all_reduce(x)
    start = time.perf_counter()
    torch.distributed.all_reduce(x)
    rounds = torch.tensor([max(5.0, seconds / (time.perf_counter() - start))])
    torch.distributed.all_reduce(rounds, op=torch.distributed.ReduceOp.MIN)
    times = []
    for _ in range(int(rounds.item())):
        start = time.perf_counter()
        torch.distributed.all_reduce(x)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def run(rank, count, ranks, store, lines):
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    x = torch.zeros(count)
    torch.distributed.barrier()
    if rank == 0:
        print("ready", flush=True)
    while True:
        seconds = torch.zeros(1)
        if rank == 0:
            line = lines.get()
            seconds[0] = float(line) if line else -1.0
        torch.distributed.broadcast(seconds, 0)
        if seconds.item() < 0:
            break
        median = measure(x, seconds.item())
        if rank == 0:
            print(json.dumps({"value": median}), flush=True)
    torch.distributed.destroy_process_group()


def main():
    count, ranks = int(sys.argv[1]), int(sys.argv[2])
    context = torch.multiprocessing.get_context("spawn")
    lines = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=run, args=(rank, count, ranks, f"{folder}/store", lines))
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        for line in sys.stdin:
            lines.put(line.strip())
        lines.put("")
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
