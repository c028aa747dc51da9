"""What a service must answer to scripts/replay_client.py; run by
python_client_test. Takes the endpoint of a service of 16 + 8 bytes with n_step 2,
discount 0.5 and one table "t" of prioritized items, exponent 1."""

import struct
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])
import replay_client  # noqa: E402

client = replay_client.Client(sys.argv[2])
info = client.describe()
assert info["observation_bytes"] == 16 and info["action_bytes"] == 8, info
assert info["tables"] == {"t": {"n_step": 2, "stack": 1, "discount": 0.5}}, info

steps = [(struct.pack("<QQ", 7, t), struct.pack("<Q", t), float(t + 1), 1.0)
         for t in range(6)]
writer = replay_client.Writer(client)
groups = [
    replay_client.step_group(info, 7, 0, steps[:4]),
    replay_client.step_group(info, 7, 4, steps[4:], struct.pack("<QQ", 7, 6)),
]
ack = writer.insert(groups)
assert ack == {"state": 0, "last_sequence": 2, "credits": info["credits"],
               "dropped": []}, ack

batch = client.sample("t", 64)
assert batch["state"] == 0 and batch["table_size"] == 6, batch
assert batch["total_steps"] == client.status()["counts"]["inserted_steps"], batch
observations = np.frombuffer(batch["rows"][: 64 * 16], "<u8").reshape(64, 2)
following = np.frombuffer(batch["rows"][64 * 16 : 64 * 32], "<u8").reshape(64, 2)
actions = np.frombuffer(batch["rows"][64 * 32 :], "<u8")
step = batch["step"].astype("u8")
assert (observations[:, 0] == 7).all() and (observations[:, 1] == step).all()
assert (following[:, 1] == np.minimum(step + 2, 6)).all()
assert (actions == step).all()
# R = r_{t+1} + 0.5 r_{t+2}, but for the last step
reward = np.where(step == 5, 6.0, (step + 1) + 0.5 * (step + 2))
np.testing.assert_allclose(batch["reward"], reward)
np.testing.assert_allclose(batch["discount"], 0.5 ** batch["n"])

# all weight on one item
keys = {int(s): int(g) for s, g in zip(batch["slot"], batch["generation"])}
slots = sorted(keys)
priorities = [0.0] * (len(slots) - 1) + [1.0]
assert client.update("t", slots, [keys[s] for s in slots], priorities) == len(slots)
assert len(slots) == 6 and (client.sample("t", 8)["slot"] == slots[-1]).all()

try:
    client.sample("others", 1)
    raise SystemExit("no error")
except replay_client.ServiceError as error:
    assert str(error) == "error 6: replay.sample: no table 'others'; there are: t", error
status = client.status()
assert status["counts"]["inserted_steps"] == 6, status
client.checkpoint(17)
writer.close()
print("ok")
