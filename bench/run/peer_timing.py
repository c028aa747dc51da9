"""The clock of bench_learner's peers, as in bench_learner. With PROCESSOR_TIME in
the environment it is the time of the process on all processors."""

import json
import os
import sys
import time

# of slow cases fewer; as in bench_learner
WARM_UP_RUNS, SLOW_WARM_UP_RUNS = 5, 1
MIN_RUNS, SLOW_MIN_RUNS = 5, 1
SLOW_SECONDS = 2.0
now = time.process_time if "PROCESSOR_TIME" in os.environ else time.perf_counter


def warm_up(step):
    begin = now()
    for i in range(WARM_UP_RUNS):
        if i >= SLOW_WARM_UP_RUNS and now() - begin > SLOW_SECONDS:
            break
        step()


def time_runs(step, seconds):
    times, begin = [], now()

    def is_enough():
        elapsed = now() - begin
        return elapsed >= seconds and (
            len(times) >= MIN_RUNS
            or len(times) >= SLOW_MIN_RUNS and elapsed > SLOW_SECONDS)
    while not is_enough():
        start = now()
        step()
        times.append(now() - start)
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
