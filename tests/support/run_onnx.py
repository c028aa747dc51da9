"""Checks an ONNX model and runs it: MODEL INPUTS.safetensors OUTPUTS.safetensors."""

import sys

import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

model, inputs, outputs = sys.argv[1:]
onnx.checker.check_model(model, full_check=True)
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
given = load_file(inputs)
wanted = {i.name: given[i.name] for i in session.get_inputs()}
save_file(dict(zip(names, session.run(names, wanted))), outputs)
print(*(f"{key}={value}" for key, value in
        sorted(session.get_modelmeta().custom_metadata_map.items())))
