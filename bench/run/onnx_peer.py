"""An ONNX model of bench_learner in onnxruntime, for bench/run/learner.

    onnx_peer.py FILE THREADS SECONDS
"""

import sys

import numpy as np
import onnxruntime
import peer_timing

model, threads, seconds = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(threads)
options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
random = np.random.default_rng(1)
inputs = {}
for given in session.get_inputs():
    if given.type == "tensor(uint8)":
        inputs[given.name] = random.integers(0, 256, given.shape, np.uint8)
    else:
        inputs[given.name] = random.random(given.shape, np.float32)
peer_timing.answer(lambda: session.run(None, inputs), float(seconds))
