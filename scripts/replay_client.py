"""A small client of the replay service, written from docs/replay_protocol.md.

    client = Client("tcp://127.0.0.1:7001")
    info = client.describe()
    writer = Writer(client)
    writer.insert([step_group(info, episode=1, first_step=0, steps=..., last=...)])
    batch = client.sample("default", 256)
    client.update("default", batch["slot"], batch["generation"], priorities)
    print(client.status()["memory"])

For inspecting a service and for tests: one request at a time, no pixels. Rows are
bytes; numbers are numpy arrays.
"""

import json
import pathlib
import secrets
import struct

import numpy as np
import zmq

MAGIC, VERSION = 0x314C5052, 1
REPLY, ERROR, ONE_WAY = 1, 2, 4
HELLO = 0xFF01
DESCRIBE, INSERT, CLOSE_WRITER, SAMPLE, UPDATE, STATUS, CHECKPOINT = 1, 2, 3, 4, 5, 6, 7
HEADER = struct.Struct("<IHHIIQQQQQI")  # and the checksum of these 60 bytes
PROTOCOL = pathlib.Path(__file__).parents[1] / "docs" / "replay_protocol.md"


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
    """The service refused a request."""


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


class Client:
    """A DEALER that says hello and then asks, one request at a time."""

    def __init__(self, endpoint, name="python", timeout_s=10.0):
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 200)
        self.socket.setsockopt(zmq.RCVTIMEO, int(1000 * timeout_s))
        self.socket.connect(endpoint)
        self.sender = secrets.randbits(64) | 1
        self.schema = schema_hash()
        self.session = 0
        self.request_id = 0
        self.name = name
        self._hello()

    def _hello(self):
        self.session = 0
        body = string("replay") + struct.pack("<I", 1) + string(self.name)
        self._send(HELLO, [body], request_id=0)
        self.session = self._receive(HELLO, 0)[0]

    def _send(self, kind, parts, request_id, flags=0):
        header = HEADER.pack(
            MAGIC, VERSION, kind, flags, len(parts), self.session, self.schema,
            request_id, self.sender, sum(map(len, parts)), 0)
        header += struct.pack("<I", crc32c(header))
        self.socket.send_multipart([header, *parts])

    def _receive(self, kind, request_id):
        while True:
            header, *parts = self.socket.recv_multipart()
            fields = HEADER.unpack(header[:60])
            if fields[:2] != (MAGIC, VERSION) or crc32c(header[:60]) != struct.unpack(
                    "<I", header[60:])[0]:
                raise ServiceError("a reply that is no envelope")
            if fields[3] & ERROR:
                reader = Reader(parts[0])
                raise ServiceError(f"error {reader.take('H')}: {reader.string()}")
            if (fields[2], fields[7]) == (kind, request_id):
                return fields[5], parts

    def call(self, kind, parts):
        self.request_id += 1
        self._send(kind, parts, self.request_id)
        return self._receive(kind, self.request_id)[1]

    def describe(self):
        reader = Reader(self.call(DESCRIBE, [])[0])
        info = dict(zip(("observation_bytes", "action_bytes", "frame_bytes",
                         "credits"), reader.take("qqqI")))
        info["tables"] = {}
        for _ in range(reader.take("I")):
            name = reader.string()
            info["tables"][name] = dict(
                zip(("n_step", "stack", "discount"), reader.take("IId")))
        return info

    def sample(self, table, count, wait_ms=5000):
        request = string(table) + struct.pack("<II?", count, wait_ms, False)
        header, rows, segments = self.call(SAMPLE, [request])
        reader = Reader(header)
        batch = dict(zip(("state", "table_size", "table_mass", "total_steps",
                          "stack"), reader.take("BQdQI")))
        reader.take("??")  # nothing is in memory, as none was offered
        for name, dtype in (("slot", "u4"), ("generation", "u4"),
                            ("probability", "f8"), ("priority", "f4"),
                            ("reward", "f4"), ("discount", "f4"),
                            ("times_sampled", "u4"), ("step", "u4"),
                            ("n", "u4")):
            batch[name] = reader.array(dtype)
        # the rows are o_t, o_{t+k} and a_t one after the other
        batch["rows"], batch["segments"] = rows, segments
        return batch

    def update(self, table, slots, generations, priorities):
        request = (string(table) + array(slots, "u4") + array(generations, "u4") +
                   array(priorities, "f4"))
        return Reader(self.call(UPDATE, [request])[0]).take("I")

    def checkpoint(self, id):
        """Returns once checkpoint `id` is on the service's disk."""
        self.call(CHECKPOINT, [struct.pack("<Q", id)])

    def status(self):
        return json.loads(Reader(self.call(STATUS, [])[0]).string())


class Writer:
    """Numbers step groups, and inserts them."""

    def __init__(self, client):
        self.client = client
        self.id = secrets.randbits(64) | 1
        self.next_sequence = 1
        self.steps = 0  # acknowledged and not dropped

    def insert(self, groups, wait_ms=1000):
        header = struct.pack("<QQQQI", self.id, self.next_sequence, self.steps,
                             self.next_sequence, wait_ms)
        header += array([len(group) for group in groups], "u4")
        reader = Reader(self.client.call(INSERT, [header, b"".join(groups)])[0])
        ack = dict(zip(("state", "last_sequence", "credits"), reader.take("BQI")))
        ack["dropped"] = reader.array("u8").tolist()
        for sequence, group in enumerate(groups, self.next_sequence):
            if sequence <= ack["last_sequence"] and sequence not in ack["dropped"]:
                self.steps += struct.unpack_from("<H", group, 4)[0]
        self.next_sequence = ack["last_sequence"] + 1
        return ack

    def close(self):
        self.client.call(CLOSE_WRITER, [struct.pack("<Q", self.id)])


def step_group(info, episode, first_step, steps, last=None):
    """`steps` are (observation, action, reward, discount); `last` is o_T."""
    observations = [step[0] for step in steps] + ([last] if last is not None else [])
    header = struct.pack(
        "<4sHHQIIII", b"RSG1", len(steps), int(last is not None), episode,
        first_step, info["observation_bytes"], info["action_bytes"], 0)
    rewards = np.array([step[2] for step in steps], "<f4").tobytes()
    discounts = np.array([step[3] for step in steps], "<f4").tobytes()
    return (header + rewards + discounts + b"".join(observations) +
            b"".join(step[1] for step in steps))
