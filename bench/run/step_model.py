"""A training step on many replicas, from measurements of one. Times are in ms,
sizes in bytes.
"""

import dataclasses
import functools
import json
import math
import random
import subprocess


def line(points):
    """(b, c) of y = b + c x, least squares of the relative error."""
    weights = [1.0 / (y * y) for _, y in points]
    total = sum(weights)
    x0 = sum(w * x for w, (x, _) in zip(weights, points)) / total
    y0 = sum(w * y for w, (_, y) in zip(weights, points)) / total
    slope = sum(w * (x - x0) * (y - y0) for w, (x, y) in zip(weights, points)) / \
        sum(w * (x - x0) ** 2 for w, (x, _) in zip(weights, points))
    return y0 - slope * x0, slope


class SharedCores:
    """Processor time of a step of the replicas of one process, however many cores
    they share:

        c rows + p + r replicas

    c: a row's share of a step of one replica alone. p and r, what a process
    and what a replica costs whatever its rows (packed weights, updates, waits),
    come from two points (replicas, rows of all, time).
    """

    def __init__(self, alone, first, last):
        """`alone`: (rows, time) of one replica."""
        _, self.row = line(alone)
        (r0, n0, t0), (r1, n1, t1) = first, last
        rest0, rest1 = t0 - self.row * n0, t1 - self.row * n1
        self.replica = (rest1 - rest0) / (r1 - r0)
        self.process = rest0 - r0 * self.replica

    def time(self, replicas, rows):
        return self.row * rows + self.process + self.replica * replicas


@dataclasses.dataclass(frozen=True)
class Cluster:
    """`per_host` replicas on each host, a process each."""
    program: str  # simulate_links
    per_host: int
    latency_us: float  # between hosts
    gb_per_s: float    # of a host, each way

    def hosts(self, replicas):
        return max(1, math.ceil(replicas / self.per_host))

    @functools.cache
    def all_reduce(self, replicas, size):
        """Our all-reduce: the program runs it and times its messages."""
        if replicas == 1:
            return 0.0
        output = subprocess.run(
            [self.program, "--hosts", str(self.hosts(replicas)),
             "--per_host", str(min(replicas, self.per_host)),
             "--count", str(int(size) // 4), "--latency_us", str(self.latency_us),
             "--gb_per_s", str(self.gb_per_s)],
            check=True, capture_output=True, text=True).stdout
        return json.loads(output)["ms"]

    def bandwidth_time(self, replicas, size):
        """For which a bucket occupies a host's link: an inner host sends sums up
        and down."""
        hosts = self.hosts(replicas)
        return min(hosts - 1, 2) * size / (self.gb_per_s * 1e6)

    def tree(self, replicas, size, piece=512 * 1024):
        """What a binary tree over the hosts would take, piece by piece."""
        hosts = self.hosts(replicas)
        inside = self.all_reduce(min(replicas, self.per_host), size)
        if hosts == 1:
            return inside
        step = self.latency_us * 1e-3 + piece / (self.gb_per_s * 1e6)
        return inside + 2 * math.ceil(math.log2(hosts)) * step + \
            self.bandwidth_time(replicas, size)


@dataclasses.dataclass(frozen=True)
class Workload:
    step: float   # of one replica, without communication
    size: float   # of all gradients
    ready: tuple  # share of the step after which each bucket is complete
    update: float = 0.0  # behind the last bucket


def simulate(workload, replicas, duration, occupied, jitter=0.0, steps=20,
             seed=1):
    """Mean time of a step of replicas with cores of their own, by events.

    Buckets are reduced in order. A reduction begins when the last replica has
    its gradients, and the one before it has occupied the link for `occupied`; it
    ends `duration` later. With occupied = duration one is under way at a time. A
    replica's step differs from the mean by `jitter` (standard deviation, as a
    share).
    """
    generator = random.Random(seed)
    compute = workload.step - workload.update
    begin = [0.0] * replicas
    for _ in range(steps):
        times = [compute * max(0.2, generator.gauss(1.0, jitter))
                 for _ in range(replicas)]
        free = last = 0.0
        for share in workload.ready:
            part = min(1.0, share * workload.step / compute)
            come = max(b + t * part for b, t in zip(begin, times))
            start = max(come, free)
            free = start + occupied
            last = start + duration
        begin = [max(b + t, last) + workload.update
                 for b, t in zip(begin, times)]
    return max(begin) / steps
