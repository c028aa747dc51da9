"""The clock of bench_learner's peers, as in bench_learner."""

import json
import sys
import time

# of slow cases fewer; as in bench_learner
WARM_UP_RUNS, SLOW_WARM_UP_RUNS = 5, 1
MIN_RUNS, SLOW_MIN_RUNS = 5, 1
SLOW_SECONDS = 2.0


def warm_up(step):
    begin = time.perf_counter()
    for i in range(WARM_UP_RUNS):
        if i >= SLOW_WARM_UP_RUNS and time.perf_counter() - begin > SLOW_SECONDS:
            break
        step()


def time_runs(step, seconds):
    times, begin = [], time.perf_counter()

    def is_enough():
        elapsed = time.perf_counter() - begin
        return elapsed >= seconds and (
            len(times) >= MIN_RUNS
            or len(times) >= SLOW_MIN_RUNS and elapsed > SLOW_SECONDS)
    while not is_enough():
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    times.sort()
    return times


def answer(step, seconds):
    """Warms up, then prints one JSON line for every line that it reads."""
    warm_up(step)
    print("ready", flush=True)
    for _ in sys.stdin:
        # the caches are another process's now
        warm_up(step)
        times = time_runs(step, seconds)
        print(json.dumps({"value": times[len(times) // 2] * 1e3,
                          "min_ms": times[0] * 1e3}), flush=True)
