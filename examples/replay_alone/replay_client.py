"""A client of the replay service, written from docs/replay_protocol.md.

    with Client("tcp://127.0.0.1:7001") as client, Writer(client) as writer:
        writer.begin()
        writer.append(observation, action, reward, discount)  # and so on
        writer.end(last_observation)
        batch = client.sample("default", 256)
        client.update("default", batch, priorities)
        print(client.status()["memory"])

Rows and frames may be bytes or numpy arrays; the service knows their lengths
only. Batches hold numpy arrays of bytes: batch["observation"].view("<f4").

A client waits for the answer of each request. It repeats requests where that is
safe, says hello again to a service that was restarted, and sends heartbeats from
a separate thread while nobody calls it. It takes neither encryption nor shared
memory. Methods may be called from any thread.
"""

import json
import pathlib
import secrets
import struct
import threading
import time

import numpy as np
import zmq

MAGIC, VERSION = 0x314C5052, 1
REPLY, ERROR, ONE_WAY = 1, 2, 4
HELLO, HEARTBEAT = 0xFF01, 0xFF02
DESCRIBE, INSERT, CLOSE_WRITER, SAMPLE, UPDATE, STATUS, CHECKPOINT = 1, 2, 3, 4, 5, 6, 7
MALFORMED, UNKNOWN_SESSION, BUSY, SHUTTING_DOWN = 1, 4, 8, 10
TAKEN, WAITING, NO_ROOM, NO_CREDITS, OUT_OF_ORDER, CLOSED = range(6)
HEADER = struct.Struct("<IHHIIQQQQQI")  # and the checksum of these 60 bytes
PROTOCOL = pathlib.Path(__file__).parents[2] / "docs" / "replay_protocol.md"

FLOAT_MAX = float(np.finfo("f4").max)
ATTEMPT_S = 1.0  # before an unanswered request is repeated
DEAD_S = 10.0  # of silence, before a connection is made anew


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data):
    """CRC-32C of RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def schema_hash():
    """FNV-1a of the protocol's name, a zero byte and its message table."""
    table = PROTOCOL.read_text().split("```\n")[1]
    value = 14695981039346656037
    for byte in b"replay\0" + table.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


class ServiceError(Exception):
    """The service refused a request; `code` is one of docs/rpc.md."""

    def __init__(self, code, text):
        super().__init__(f"error {code}: {text}")
        self.code = code


class RequestLost(Exception):
    """The service went away; it may have executed the request."""


class _Again(Exception):
    """The request is to be sent again."""


class Reader:
    """Takes the fields of one message part."""

    def __init__(self, data):
        self.data, self.offset = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.offset)
        self.offset += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def raw(self, size):
        self.offset += size
        if self.offset > len(self.data):
            raise ValueError("a message part is too short")
        return self.data[self.offset - size : self.offset]

    def string(self):
        return self.raw(self.take("I")).decode()

    def array(self, dtype):
        dtype = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self.raw(self.take("I") * dtype.itemsize), dtype)


def string(text):
    return struct.pack("<I", len(text.encode())) + text.encode()


def array(values, dtype):
    data = np.asarray(values).astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    return struct.pack("<I", len(values)) + data


def row(data, size, what):
    data = bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else (
        np.asarray(data).tobytes())
    if len(data) != size:
        raise ValueError(f"{what} of {len(data)} bytes; the service wants {size}")
    return data


class Client:
    """A DEALER that says hello and then asks, one request at a time.

    `timeout_s` bounds each call, without the time that the call itself asks the
    service to wait; TimeoutError ends it.
    """

    def __init__(self, endpoint, name="python", timeout_s=10.0, heartbeat_s=1.0):
        self.endpoint, self.name = endpoint, name
        self.timeout_s, self.heartbeat_s = timeout_s, heartbeat_s
        self.num_hellos = 0
        self._schema = schema_hash()
        self._sender = secrets.randbits(64) | 1
        self._request_id = 0
        self._socket = None
        self._lock = threading.RLock()
        self._is_closed = threading.Event()
        self._connect()
        with self._lock:
            self._hello(time.monotonic() + timeout_s)
        self._thread = threading.Thread(target=self._beat_while_idle, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._is_closed.set()
        self._thread.join()
        self._socket.close()

    # --- requests ---

    def call(self, kind, parts, is_idempotent=True, wait_s=0.0):
        """The parts of the answer. `wait_s` is how long the service may take."""
        deadline = time.monotonic() + self.timeout_s + wait_s
        with self._lock:
            request_id = self._next_id()
            while True:
                if self._session == 0:
                    self._hello(deadline)
                self._send(kind, parts, request_id)
                attempt = time.monotonic() + wait_s + ATTEMPT_S
                try:
                    return self._await(
                        kind, request_id,
                        min(attempt, deadline) if is_idempotent else deadline,
                        is_idempotent)
                except _Again:
                    if time.monotonic() >= deadline:
                        raise TimeoutError(
                            f"{self.endpoint}: no answer in time") from None

    def describe(self):
        reader = Reader(self.call(DESCRIBE, [])[0])
        info = dict(zip(("observation_bytes", "action_bytes", "frame_bytes",
                         "credits"), reader.take("qqqI")))
        info["tables"] = {}
        for _ in range(reader.take("I")):
            name = reader.string()
            info["tables"][name] = dict(
                zip(("n_step", "stack", "discount", "window", "period"),
                    reader.take("IIdII")))
        return info

    def sample(self, table, count, wait_ms=5000):
        """A batch of up to `count` items; batch["state"] is 0 if it is full.

        observation, next_observation and action are [B, bytes]; frames and
        next_frames, if there are pixels, [B, stack, frame_bytes].

        A table with windows of H steps gives observation [B, H + 1, bytes],
        action [B, H, bytes], step_reward and step_discount [B, H], mask [B, H],
        true for the n steps of each window, and frames
        [B, H + stack, frame_bytes].
        """
        window = self._info()["tables"].get(table, {"window": 0})["window"]
        request = string(table) + struct.pack("<III??", count, wait_ms, window, False, False)
        header, rows, segments = self.call(
            SAMPLE, [request], is_idempotent=False, wait_s=wait_ms / 1000)
        reader = Reader(header)
        batch = dict(zip(("state", "table_size", "table_mass", "total_steps",
                          "stack", "window"), reader.take("BQdQII")))
        reader.take("??")  # nothing is in memory, as none was offered
        for name, dtype in (("slot", "u4"), ("generation", "u4"),
                            ("probability", "f8"), ("priority", "f4"),
                            ("reward", "f4"), ("discount", "f4"),
                            ("times_sampled", "u4"), ("age", "u8"),
                            ("step", "u4"), ("n", "u4"), ("num_segments", "u4"),
                            ("step_reward", "f4"), ("step_discount", "f4"),
                            ("first_step", "u4"), ("num_frames", "u4"),
                            ("skip", "u4"), ("segment_bytes", "u4"), ("serial", "u8")):
            batch[name] = reader.array(dtype)
        info = self._info()
        size, width = len(batch["slot"]), info["observation_bytes"]
        flat = np.frombuffer(rows, np.uint8)
        if window > 0:
            num_bytes = size * (window + 1) * width
            batch["observation"] = flat[:num_bytes].reshape(size, window + 1, width)
            batch["action"] = flat[num_bytes:].reshape(size, window, info["action_bytes"])
            for name in ("step_reward", "step_discount"):
                batch[name] = batch[name].reshape(size, window)
            batch["mask"] = np.arange(window) < batch["n"][:, None]
        else:
            batch["observation"] = flat[: size * width].reshape(size, width)
            batch["next_observation"] = (
                flat[size * width : 2 * size * width].reshape(size, width))
            batch["action"] = flat[2 * size * width :].reshape(size, info["action_bytes"])
        if info["frame_bytes"] > 0:
            batch.update(_frames(batch, segments, info["frame_bytes"]))
        return batch

    def update(self, table, batch, priorities):
        """Sets priorities of items by `slot` and `generation` of `batch`."""
        request = (string(table) + array(batch["slot"], "u4") +
                   array(batch["generation"], "u4") + array(priorities, "f4"))
        return Reader(self.call(UPDATE, [request])[0]).take("I")

    def checkpoint(self, id):
        """Returns once checkpoint `id` is on the service's disk."""
        self.call(CHECKPOINT, [struct.pack("<Q", id)], is_idempotent=False,
                  wait_s=3600.0)

    def status(self):
        return json.loads(Reader(self.call(STATUS, [])[0]).string())

    # --- the connection ---

    def _info(self):
        if self._description is None:
            self._description = self.describe()
        return self._description

    def _connect(self):
        if self._socket is not None:
            self._socket.close()
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 200)
        self._socket.connect(self.endpoint)
        self._session = 0
        self._description = None
        self._last_heard = self._last_beat = time.monotonic()

    def _next_id(self):
        self._request_id += 1
        return self._request_id

    def _hello(self, deadline):
        body = string("replay") + struct.pack("<I", 3) + string(self.name)
        while True:
            self._send(HELLO, [body], request_id=0)
            try:
                self._await(HELLO, 0, min(deadline, time.monotonic() + ATTEMPT_S),
                            is_idempotent=True)
                self._description = None
                self.num_hellos += 1
                return
            except _Again:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{self.endpoint}: no answer in time") from None

    def _send(self, kind, parts, request_id):
        header = HEADER.pack(
            MAGIC, VERSION, kind, 0, len(parts), 0 if kind == HELLO else self._session,
            self._schema, request_id, self._sender, sum(map(len, parts)), 0)
        header += struct.pack("<I", crc32c(header))
        self._socket.send_multipart([header, *parts])

    def _await(self, kind, request_id, deadline, is_idempotent):
        while True:
            now = time.monotonic()
            if now >= deadline:
                if is_idempotent:
                    raise _Again
                raise TimeoutError(f"{self.endpoint}: no answer in time")
            if kind != HELLO and not self._beat(now):
                self._connect()
                self._give_up(is_idempotent)
            wait_s = min(deadline - now, self.heartbeat_s)
            if self._socket.poll(1 + int(1000 * wait_s)) == 0:
                continue
            fields, parts = self._receive()
            is_answer = (fields[2], fields[7]) == (kind, request_id)
            if not fields[3] & ERROR:
                if is_answer and kind == HELLO:
                    self._session = fields[5]
                if is_answer:
                    return parts
                continue
            reader = Reader(parts[0])
            code, text = reader.take("H"), reader.string()
            if code == UNKNOWN_SESSION:
                self._session = 0
                # a request that is refused so was not executed
                self._give_up(is_idempotent or is_answer)
            if is_answer and code in (BUSY, SHUTTING_DOWN):
                time.sleep(0.05)
                raise _Again
            if is_answer or fields[7] == 0:
                raise ServiceError(code, text)

    def _give_up(self, may_repeat):
        if may_repeat:
            raise _Again
        raise RequestLost(f"{self.endpoint}: the service went away")

    def _receive(self):
        header, *parts = self._socket.recv_multipart()
        fields = HEADER.unpack(header[:60])
        if fields[:2] != (MAGIC, VERSION) or crc32c(header[:60]) != struct.unpack(
                "<I", header[60:])[0]:
            raise ValueError(f"{self.endpoint}: a reply is not an envelope")
        self._last_heard = time.monotonic()
        return fields, parts

    def _beat(self, now):
        """Sends a heartbeat if it is due; False if the service seems dead."""
        last = max(self._last_heard, self._last_beat)
        if self._session != 0 and now - last >= self.heartbeat_s:
            self._last_beat = now
            self._send(HEARTBEAT, [], self._next_id())
        return now - self._last_heard < DEAD_S

    def _beat_while_idle(self):
        while not self._is_closed.wait(self.heartbeat_s / 2):
            # a call beats by itself
            if not self._lock.acquire(blocking=False):
                continue
            try:
                while self._socket.poll(0):
                    fields, parts = self._receive()
                    if fields[3] & ERROR and Reader(parts[0]).take("H") == UNKNOWN_SESSION:
                        self._session = 0
                if not self._beat(time.monotonic()):
                    self._connect()
                if self._session == 0:
                    self._hello(time.monotonic() + self.heartbeat_s)
            except (TimeoutError, ServiceError):
                pass  # the next call tells
            finally:
                self._lock.release()


class Writer:
    """Streams the episodes of one environment, one at a time."""

    def __init__(self, client, group_steps=8):
        self.client, self.info = client, client.describe()
        self.group_steps = group_steps
        self.id = secrets.randbits(64) | 1
        self.steps = 0  # acknowledged and not dropped
        self.dropped = 0  # chunks that continued no episode known to the service, or were refused
        self.last_ack = None
        self._chunks = []  # not acknowledged
        self._base = 1  # the number of the first of them
        self._credits = self.info["credits"]
        self._episode, self._first_step = 0, 0
        self._steps, self._frames = None, []  # of the chunk being filled

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def begin(self):
        self._episode += 1
        self._first_step, self._steps, self._frames = 0, [], []

    def append(self, observation, action, reward, discount=1.0, frame=None,
               priority=None):
        """Step (o_t, a_t, r_{t+1}, d_{t+1}); all or no steps of an episode have a
        priority. Copies the rows. Waits while the service has no room. ValueError for a
        number or a row that a step cannot have; the episode continues without that
        step."""
        if not abs(reward) <= FLOAT_MAX:
            raise ValueError(f"reward {reward}; want a finite float32")
        if not 0 <= discount <= 1:
            raise ValueError(f"discount {discount} is outside [0, 1]")
        if priority is not None and not 0 <= priority <= FLOAT_MAX:
            raise ValueError(f"priority {priority}; want a finite float32 >= 0")
        step = (self._row(observation, "observation"), self._row(action, "action"), reward,
                discount, priority)
        self._frames.append(self._row(frame, "frame"))
        self._steps.append(step)
        if len(self._steps) == self.group_steps:
            self._finish_chunk(None)

    def end(self, observation, frame=None):
        """o_T ends the episode; returns once all of it is acknowledged."""
        self._frames.append(self._row(frame, "frame"))
        self._finish_chunk(observation)
        self._steps = None

    def insert(self, chunks):
        """Sends finished chunks until all are acknowledged. A ServiceError gives up
        the chunk that the service refused."""
        self._chunks += chunks
        deadline = time.monotonic() + self.client.timeout_s
        while self._chunks:
            num_before = len(self._chunks)
            try:
                self._send_once(self._chunks[: self._credits])
            except ServiceError as error:
                if error.code == MALFORMED:
                    # the chunks before the refused one are in
                    self._send_once([])
                    self._take_off(is_dropped=True)
                raise
            if len(self._chunks) < num_before:
                deadline = time.monotonic() + self.client.timeout_s
            elif time.monotonic() >= deadline:
                raise TimeoutError(f"no room: {self.last_ack}")
            elif self.last_ack["state"] in (NO_ROOM, CLOSED):
                time.sleep(0.05)

    def close(self):
        self.client.call(CLOSE_WRITER, [struct.pack("<Q", self.id)])

    def _row(self, data, kind):
        """A copy of the row as bytes; b"" of the frames that the service does not have."""
        size = self.info[f"{kind}_bytes"]
        if kind == "frame" and size == 0:
            return b""
        return row(data, size, f"{'a' if kind == 'frame' else 'an'} {kind}")

    def _finish_chunk(self, last):
        frames = self._frames if self.info["frame_bytes"] > 0 else None
        chunk = encode_chunk(self.info, self._episode, self._first_step, self._steps,
                           last, frames)
        self._first_step += len(self._steps)
        self._steps, self._frames = [], []
        self.insert([chunk])

    def _take_off(self, is_dropped):
        """Forgets the first chunk, which the service has or never will."""
        chunk = self._chunks.pop(0)
        if is_dropped:
            self.dropped += 1
        else:
            self.steps += struct.unpack_from("<H", chunk, 4)[0]
        self._base += 1

    def _send_once(self, chunks):
        # without a chunk it asks for credits
        wait_ms = 1000
        header = struct.pack("<QQQQI", self.id, self._base, self.steps, self._base,
                             wait_ms)
        header += array([len(chunk) for chunk in chunks], "u4")
        reader = Reader(self.client.call(INSERT, [header, b"".join(chunks)],
                                         wait_s=wait_ms / 1000)[0])
        ack = dict(zip(("state", "last_sequence", "credits"), reader.take("BQI")))
        ack["dropped"] = reader.array("u8").tolist()
        # a restarted service may know a smaller number than the writer's own
        while self._chunks and self._base <= ack["last_sequence"]:
            self._take_off(is_dropped=self._base in ack["dropped"])
        self._credits, self.last_ack = ack["credits"], ack


def encode_chunk(info, episode, first_step, steps, last=None, frames=None):
    """`steps` are (observation, action, reward, discount) or the same with a
    priority; `last` is o_T; `frames` has one frame for each observation."""
    observations = [step[0] for step in steps] + ([last] if last is not None else [])
    has_priorities = bool(steps) and len(steps[0]) > 4 and steps[0][4] is not None
    images = b""
    if info["frame_bytes"] > 0:
        images = encode_frame_block([row(frame, info["frame_bytes"], "a frame")
                              for frame in frames])
    header = struct.pack(
        "<4sHHQIIII", b"RSG1", len(steps), int(last is not None) + 2 * has_priorities,
        episode, first_step, info["observation_bytes"], info["action_bytes"],
        len(images))
    columns = [np.array([step[i] for step in steps], "<f4").tobytes()
               for i in (2, 3, 4)[: 2 + has_priorities]]
    observations = [row(o, info["observation_bytes"], "an observation")
                    for o in observations]
    actions = [row(step[1], info["action_bytes"], "an action") for step in steps]
    return b"".join([header, *columns, *observations, *actions, images])


def encode_frame_block(frames):
    """The frames, compressed by LZ4 with the first as the others' dictionary."""
    import lz4.block

    stored = []
    for i, frame in enumerate(frames):
        small = lz4.block.compress(frame, store_size=False, dict=frames[0] if i else b"")
        stored.append(small if len(small) < len(frame) else frame)
    ends = np.cumsum([len(data) for data in stored]).astype("<u4").tobytes()
    header = struct.pack("<4sHHII", b"RFG1", 1, len(frames), len(frames[0]), 0)
    return b"".join([header, ends, *stored])


def frames_of_block(data):
    """The frames of a frame block, one after the other."""
    magic, codec, count, frame_bytes, zero = struct.unpack_from("<4sHHII", data)
    if magic != b"RFG1" or zero != 0 or codec > 2:
        raise ValueError("no frame block")
    ends = np.frombuffer(data, "<u4", count, offset=16).tolist()
    payload = data[16 + 4 * count :]
    frames = []
    for begin, end in zip([0] + ends, ends):
        frame = payload[begin:end]
        if len(frame) != frame_bytes:
            frame = _decompress(codec, frame, frame_bytes, frames[0] if frames else b"")
        frames.append(frame)
    return frames


def _decompress(codec, data, size, dictionary):
    if codec == 1:
        import lz4.block

        return lz4.block.decompress(data, uncompressed_size=size, dict=dictionary)
    if codec == 2:
        import zstandard

        if dictionary:
            dictionary = zstandard.ZstdCompressionDict(
                dictionary, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        return zstandard.ZstdDecompressor(dict_data=dictionary or None).decompress(
            data, max_output_size=size)
    raise ValueError("a compressed frame in a chunk without a codec")


def _frames(batch, segments, frame_bytes):
    """The stacks of o_t and o_{t+k} of each item, or the frames of each window."""
    size, stack, window = len(batch["slot"]), batch["stack"], batch["window"]
    arrays = {"frames": np.zeros((size, stack + window, frame_bytes), np.uint8)}
    if window == 0:
        arrays["next_frames"] = np.zeros((size, stack, frame_bytes), np.uint8)
    segment = offset = 0
    for i in range(size):
        frames = {}  # by step of the episode
        for _ in range(batch["num_segments"][i]):
            num_bytes = int(batch["segment_bytes"][segment])
            first, skip = int(batch["first_step"][segment]), int(batch["skip"][segment])
            chunk = frames_of_block(segments[offset : offset + num_bytes])
            for j in range(int(batch["num_frames"][segment])):
                frames[first + j] = chunk[skip + j]
            offset += num_bytes
            segment += 1
        t, k = int(batch["step"][i]), int(batch["n"][i])
        begins = {"frames": t - stack + 1, "next_frames": t + k - stack + 1}
        for name, array in arrays.items():
            for j in range(stack + k if window > 0 else stack):
                array[i, j] = np.frombuffer(frames[max(0, begins[name] + j)], np.uint8)
    return arrays
