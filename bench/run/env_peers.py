"""Steps a peer's environments for bench/run/env.

    env_peers.py (dm_control | envpool | batch | python) TASK (state | pixels) SECONDS THREADS

python is this project's own package, in the interpreter that runs this file;
batch is MuJoCo's mujoco.batch.Batch, which makes no observations and rewards.

For every line on stdin it measures once and prints a JSON line: environment
steps per second of time and per second of CPU. With pixels a step repeats its
action and ends with one picture. dm_control has one thread.
"""

import collections
import json
import os
import sys
import time

os.environ.setdefault("MUJOCO_GL", "osmesa")

import numpy as np

ENVIRONMENTS = 16
# With pixels.
SIDE = 84
ACTION_REPEAT = 2
FRAME_STACK = 3


def rates(step, steps_per_call, seconds):
    calls, cpu, start = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() - start < seconds:
        step()
        calls += 1
    steps = calls * steps_per_call
    return {"value": steps / (time.perf_counter() - start),
            "per_cpu_second": steps / (time.process_time() - cpu)}


def dm_control_pixels(task, seconds, _):
    from dm_control import suite
    environment = suite.load(*task.split("-", 1), task_kwargs={"random": 0})
    spec = environment.action_spec()
    actions = iter_rows(spec.minimum, spec.maximum, (spec.shape[0],))
    environment.reset()
    frames = collections.deque(maxlen=FRAME_STACK)

    def step():
        action = next(actions)
        for _ in range(ACTION_REPEAT):
            environment.step(action)
        frames.append(environment.physics.render(SIDE, SIDE, camera_id=0))
        return np.concatenate(frames, axis=-1)

    yield from serve(lambda: rates(step, 1, seconds))


def envpool_pixels(task, seconds, threads):
    import envpool as pool
    environments = 4
    sync = pool.make_gymnasium(
        envpool_name(task), num_envs=environments, num_threads=threads,
        from_pixels=True, render_height=SIDE, render_width=SIDE,
        frame_stack=FRAME_STACK, frame_skip=ACTION_REPEAT)
    actions = iter_rows(-1.0, 1.0, (environments,) + sync.action_space.shape)
    sync.reset()
    yield from serve(lambda: rates(lambda: sync.step(next(actions)),
                                   environments, seconds))


def envpool_name(task):
    words = task.replace("-", "_").split("_")
    return "".join(word.capitalize() for word in words) + "-v1"


def dm_control(task, seconds, _):
    from dm_control import suite
    environment = suite.load(*task.split("-", 1), task_kwargs={"random": 0})
    spec = environment.action_spec()
    actions = iter_rows(spec.minimum, spec.maximum, (spec.shape[0],))
    environment.reset()
    yield from serve(lambda: rates(lambda: environment.step(next(actions)), 1, seconds))


def envpool(task, seconds, threads):
    import envpool as pool
    name = envpool_name(task)
    sync = pool.make_dm(name, num_envs=ENVIRONMENTS, num_threads=threads)
    spec = sync.action_spec()
    shape = (ENVIRONMENTS,) + spec.shape
    actions = iter_rows(-1.0, 1.0, shape)
    sync.reset()

    # twice as many environments as are waited for, as EnvPool recommends
    batch = ENVIRONMENTS // 2
    asynchronous = pool.make_gymnasium(
        name, num_envs=2 * ENVIRONMENTS, batch_size=batch, num_threads=threads)
    asynchronous.async_reset()
    batch_actions = iter_rows(-1.0, 1.0, (batch,) + spec.shape)

    def step_asynchronous():
        info = asynchronous.recv()[-1]
        asynchronous.send(next(batch_actions), info["env_id"])

    def measure():
        a = rates(lambda: sync.step(next(actions)), ENVIRONMENTS, seconds / 2)
        b = rates(step_asynchronous, batch, seconds / 2)
        # the better of its two modes
        return {key: max(a[key], b[key]) for key in a}

    yield from serve(measure)


def batch(task, seconds, threads):
    from dm_control import suite
    from mujoco.batch import Batch
    environment = suite.load(*task.split("-", 1), task_kwargs={"random": 0})
    model = environment.physics.model.ptr
    spec = environment.action_spec()
    actions = iter_rows(spec.minimum, spec.maximum, (ENVIRONMENTS,) + spec.shape)
    batches = [Batch(model, ENVIRONMENTS, threads, persistent=p) for p in (False, True)]
    for i in range(ENVIRONMENTS):
        environment.reset()
        for each in batches:
            each.qpos[i] = environment.physics.data.qpos

    def measure_one(each):
        def step():
            each.ctrl[:] = next(actions)
            each.step(nstep=environment._n_sub_steps)
        return rates(step, ENVIRONMENTS, seconds / 2)

    def measure():
        results = [measure_one(each) for each in batches]
        # the better of its two modes
        return {key: max(result[key] for result in results) for key in results[0]}

    yield from serve(measure)


def python(task, seconds, threads, **options):
    from replicant import envs
    batch = envs.make_vec(task, ENVIRONMENTS, num_threads=0 if threads == 1 else threads, seed=0,
                          **options)
    # as in bench_env, whose actions are float64 as well
    actions = iter_rows(-1.0, 1.0, batch.action_space.shape)
    batch.reset()
    yield from serve(lambda: rates(lambda: batch.step(next(actions)), ENVIRONMENTS, seconds))


def python_pixels(task, seconds, threads):
    yield from python(task, seconds, threads, pixels=(SIDE, SIDE), frame_stack=FRAME_STACK,
                      action_repeat=ACTION_REPEAT)


def iter_rows(low, high, shape):
    rows = np.random.RandomState(0).uniform(low, high, (64,) + shape)
    while True:
        yield from rows


def serve(measure):
    for _ in sys.stdin:
        yield measure()


if __name__ == "__main__":
    peer = {("dm_control", "state"): dm_control,
            ("dm_control", "pixels"): dm_control_pixels,
            ("envpool", "state"): envpool,
            ("envpool", "pixels"): envpool_pixels,
            ("batch", "state"): batch,
            ("python", "state"): python,
            ("python", "pixels"): python_pixels}[sys.argv[1], sys.argv[3]]
    for result in peer(sys.argv[2], float(sys.argv[4]), int(sys.argv[5])):
        print(json.dumps(result), flush=True)
