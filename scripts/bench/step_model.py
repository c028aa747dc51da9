"""A training step on many replicas, from measurements of one. Times are in ms,
sizes in bytes.
"""

import dataclasses
import functools
import json
import math
import random
import subprocess


def shared_cores(alone, update, replicas, waking):
    """Processor time of a step of replicas of one process, however many cores
    they share: `alone` is that of one replica on its rows. Each makes its part
    of the update, which reads the gradients of all: R + 4 numbers an element in
    place of 5 R (docs/replicator.md). `waking` is what one replica's waits
    cost."""
    if replicas == 1:
        return alone
    shared = update * (replicas + 4) / 5
    return replicas * (alone - update) + shared + replicas * waking


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
