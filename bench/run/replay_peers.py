"""Measures a replay from Python for bench/run/replay.

    replay_peers.py (replicant | reverb | cpprb) CASE [FRAMES]

CASE is one of insert-state, sample-state, update, insert-pixels and
sample-pixels, for replicant also with -none after pixels: frames are not
compressed. It fills the tables of the case, prints "ready", and for every line
"SECONDS" on stdin measures once and prints a JSON line: items per second.

Replicant and Reverb run as for a user: a server process, its clients in this
one. If Reverb has several ways to do a task, each is measured and the best counts.
FRAMES is the file of bench/run/record_frames.py, 84 x 84 x 3 bytes a frame.
"""

import itertools
import json
import os
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np

BATCH = 256
N_STEP = 5
STACK = 3
OBSERVATION, ACTION = 17, 6  # cheetah-run, f32
ROWS = 4096
STATE_ITEMS, PIXEL_ITEMS = 50_000, 8_000

rng = np.random.RandomState(0)
OBSERVATIONS = rng.randn(ROWS, OBSERVATION).astype(np.float32)
ACTIONS = rng.randn(ROWS, ACTION).astype(np.float32)


def rate(run, seconds):
    """Items per second of calls of run(), which returns how many it did."""
    items, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        items += run()
    return items / (time.perf_counter() - start)


# --- Reverb ---

def reverb_server():
    import reverb
    tables = [
        reverb.Table(name, reverb.selectors.Prioritized(0.6),
                     reverb.selectors.Fifo(), max_size=size,
                     rate_limiter=reverb.rate_limiters.MinSize(1))
        for name, size in (("state", 1_000_000), ("pixel", 20_000))]
    server = reverb.Server(tables=tables, port=None)
    print(server.port, flush=True)
    server.wait()


class Reverb:
    def __init__(self, frames):
        import reverb
        self.reverb = reverb
        self.frames = frames
        self.server = subprocess.Popen([sys.executable, __file__, "reverb-server"],
                                       stdout=subprocess.PIPE, text=True)
        self.address = f"localhost:{int(self.server.stdout.readline())}"
        self.client = reverb.Client(self.address)

    def state_step(self, i):
        row = i % ROWS
        return {"o": OBSERVATIONS[row], "a": ACTIONS[row],
                "r": np.float32(1.0), "d": np.float32(0.99)}

    def structured_writer(self):
        """The fastest for state: items are built by the writer's C++ side."""
        import tensorflow as tf
        from reverb import structured_writer
        step = {"o": tf.TensorSpec((OBSERVATION,)), "a": tf.TensorSpec((ACTION,)),
                "r": tf.TensorSpec(()), "d": tf.TensorSpec(())}
        pattern = structured_writer.pattern_from_transform(
            step, lambda s: {"o": s["o"][-N_STEP - 1], "a": s["a"][-N_STEP - 1],
                             "r": s["r"][-N_STEP - 1:-1],
                             "d": s["d"][-N_STEP - 1:-1], "o2": s["o"][-1]})
        config = structured_writer.create_config(pattern=pattern, table="state")
        return self.client.structured_writer([config])

    def insert_structured(self, count):
        writer = self.structured_writer()
        for i in range(count):
            writer.append(self.state_step(i))
            if i % 200 == 199:
                writer.flush(200)
        writer.flush()
        return count

    def insert_trajectories(self, count):
        with self.client.trajectory_writer(num_keep_alive_refs=N_STEP + 1) as writer:
            for key in "oard":
                writer.configure((key,), num_keep_alive_refs=32, max_chunk_length=32)
            for i in range(count):
                writer.append(self.state_step(i))
                if i >= N_STEP:
                    h = writer.history
                    writer.create_item("state", 1.0, {
                        "o": h["o"][-N_STEP - 1], "a": h["a"][-N_STEP - 1],
                        "r": h["r"][-N_STEP - 1:-1], "d": h["d"][-N_STEP - 1:-1],
                        "o2": h["o"][-1]})
                if i % 200 == 199:
                    writer.flush(block_until_num_items=200)
            writer.flush()
        return count

    def insert_pixels(self, count, chunk=None):
        """Frames are shared among the items whose stacks hold them."""
        length = N_STEP + STACK
        with self.client.trajectory_writer(num_keep_alive_refs=length) as writer:
            if chunk:
                writer.configure(("f",), num_keep_alive_refs=max(length, chunk),
                                 max_chunk_length=chunk)
            for i in range(count):
                writer.append({"f": self.frames[i % len(self.frames)],
                               "a": ACTIONS[i % ROWS], "r": np.float32(1.0),
                               "d": np.float32(0.99)})
                if i >= length - 1:
                    h = writer.history
                    writer.create_item("pixel", 1.0, {
                        "o": h["f"][-length:-length + STACK],
                        "a": h["a"][-N_STEP - 1], "r": h["r"][-N_STEP - 1:-1],
                        "o2": h["f"][-STACK:]})
                if i % 100 == 99:
                    writer.flush(block_until_num_items=100)
            writer.flush()
        return count

    def dataset(self, table, workers):
        import tensorflow as tf
        if table == "state":
            shapes = {"o": (OBSERVATION,), "a": (ACTION,), "r": (N_STEP,),
                      "d": (N_STEP,), "o2": (OBSERVATION,)}
        else:
            stack = (STACK, 84, 84, 3)
            shapes = {"o": stack, "a": (ACTION,), "r": (N_STEP,), "o2": stack}
        types = {key: tf.uint8 if len(shape) == 4 else tf.float32
                 for key, shape in shapes.items()}
        dataset = self.reverb.TrajectoryDataset(
            server_address=self.address, table=table, dtypes=types,
            shapes={key: tf.TensorShape(shape) for key, shape in shapes.items()},
            max_in_flight_samples_per_worker=512,
            num_workers_per_iterator=workers)
        return iter(dataset.batch(BATCH).prefetch(2))

    def measures(self, case):
        """The ways to do the case; each takes seconds and returns a rate."""
        if case == "insert-state":
            return [lambda s: rate(lambda: self.insert_structured(4000), s),
                    lambda s: rate(lambda: self.insert_trajectories(4000), s)]
        if case == "insert-pixels":
            return [lambda s: rate(lambda: self.insert_pixels(1000), s),
                    lambda s: rate(lambda: self.insert_pixels(1000, chunk=1), s)]
        if case == "update":
            self.insert_structured(STATE_ITEMS)
            keys = [sample.info.key for sample in
                    self.client.sample("state", BATCH, emit_timesteps=False)]
            updates = dict(zip(keys, rng.rand(len(keys))))

            def update():
                self.client.mutate_priorities("state", updates=updates)
                return len(updates)
            return [lambda s: rate(update, s)]
        if case == "sample-state":
            self.insert_structured(STATE_ITEMS)
            workers = (4, -1)
        else:
            self.insert_pixels(PIXEL_ITEMS)
            workers = (-1, 2)
        table = case.split("-")[1].replace("pixels", "pixel")
        iterators = [self.dataset(table, w) for w in workers]
        for iterator in iterators:
            next(iterator)

        def read(iterator):
            next(iterator)
            return BATCH
        return [lambda s, it=it: rate(lambda: read(it), s) for it in iterators]

    def close(self):
        self.server.kill()
        self.server.wait()


# --- this project's package ---

class Replicant:
    EPISODE = 1000  # steps

    def __init__(self, frames):
        from replicant import replay
        self.replay = replay
        self.frames = frames

    def start(self, has_frames, codec):
        step = (dict(observation=None, frame=((84, 84, 3), "uint8")) if has_frames else
                dict(observation=((OBSERVATION,), "float32")))
        table = {"n_step": N_STEP, "discount": 0.99, "priority_exponent": 0.6,
                 "stack": STACK if has_frames else 1,
                 "max_size": 20_000 if has_frames else 1_000_000}
        self.service = self.replay.Replay.start(
            self.replay.Signature(action=((ACTION,), "float32"), **step),
            tables={"default": table}, process="child")
        self.writer = self.service.writer(codec=codec)

    def insert(self, count):
        writer, frames = self.writer, self.frames
        frame = (lambda i: frames[i % len(frames)]) if frames is not None else lambda i: None
        observation = ((lambda row: None) if frames is not None else
                       lambda row: OBSERVATIONS[row])
        for i in range(count):
            if i % self.EPISODE == 0:
                writer.begin()
            row = i % ROWS
            writer.append(observation(row), ACTIONS[row], 1.0, 1.0, frame=frame(i))
            if (i + 1) % self.EPISODE == 0 or i + 1 == count:
                writer.end(observation(row), frame=frame(i))
        writer.flush()
        return count

    def measures(self, case):
        has_frames = "pixels" in case
        if not has_frames:
            self.frames = None
        self.start(has_frames, "none" if case.endswith("-none") else "lz4")
        if case.startswith("insert"):
            return [lambda s: rate(lambda: self.insert(1000 if has_frames else 4000), s)]
        self.insert(PIXEL_ITEMS if has_frames else STATE_ITEMS)
        reader = self.service.reader(batch_size=BATCH, decode_threads=os.cpu_count())
        if case == "update":
            batch = reader.sample()
            priorities = rng.rand(BATCH).astype(np.float32)

            def update():
                reader.update_priorities(batch, priorities)
                return BATCH
            return [lambda s: rate(update, s)]
        return [lambda s: rate(lambda: len(reader.sample()), s)]

    def close(self):
        self.service.close()


# --- cpprb: in process, without a service ---

class Cpprb:
    ITEMS = 1_000_000

    def __init__(self, _frames):
        import cpprb
        spec = {"obs": {"shape": OBSERVATION}, "act": {"shape": ACTION}, "rew": {},
                "done": {}, "next_obs": {"shape": OBSERVATION}}
        self.make = lambda n_step: cpprb.PrioritizedReplayBuffer(
            self.ITEMS, spec, alpha=0.6, Nstep=n_step)

    def fill(self):
        buffer = self.make(None)
        while buffer.get_stored_size() < self.ITEMS:
            buffer.add(obs=OBSERVATIONS[:4000], act=ACTIONS[:4000], rew=np.ones(4000),
                       done=np.zeros(4000), next_obs=OBSERVATIONS[1:4001],
                       priorities=rng.rand(4000) + 0.01)
        return buffer

    def measures(self, case):
        if case == "insert-state":
            buffer = self.make({"size": N_STEP, "gamma": 0.99, "rew": "rew",
                                "next": "next_obs"})

            def add():
                for i in range(500):
                    buffer.add(obs=OBSERVATIONS[i], act=ACTIONS[i], rew=1.0, done=0.0,
                               next_obs=OBSERVATIONS[i + 1])
                return 500
            return [lambda s: rate(add, s)]
        buffer = self.fill()
        if case == "sample-state":
            return [lambda s: rate(
                lambda: len(buffer.sample(BATCH, beta=0.4)["indexes"]), s)]
        # as in bench_shard: a hundred batches, one after the other
        batches = itertools.cycle([buffer.sample(BATCH, beta=0.4)["indexes"]
                                   for _ in range(100)])
        priorities = rng.rand(BATCH)

        def update():
            buffer.update_priorities(next(batches), priorities)
            return BATCH
        return [lambda s: rate(update, s)]

    def close(self):
        pass


def main():
    if sys.argv[1] == "reverb-server":
        reverb_server()
        return
    frames = None
    if len(sys.argv) > 3:
        frames = np.fromfile(sys.argv[3], np.uint8).reshape(-1, 84, 84, 3)
    peers = {"replicant": Replicant, "reverb": Reverb, "cpprb": Cpprb}
    peer = peers[sys.argv[1]](frames)
    try:
        measures = peer.measures(sys.argv[2])
        # the best way is chosen once, then repeated
        best = max(measures, key=lambda measure: measure(0.5))
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps({"value": best(float(line))}), flush=True)
    finally:
        peer.close()


if __name__ == "__main__":
    main()
