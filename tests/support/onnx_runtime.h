#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/tensor/host_tensor.h"
#include "base/tensor/safetensors.h"

namespace replicant::testing {

struct OnnxResult {
  std::map<std::string, HostTensor> outputs;
  std::string metadata;  // "key=value key=value", by key
};

// Checks an ONNX model by the package onnx and runs it by onnxruntime, in a
// process of Python. Inputs that the model lacks are left out. Throws Error
// with what Python prints if the model is refused. For tests with FINDS_FILES.
inline OnnxResult RunOnnx(const std::string& model,
                          const std::map<std::string, HostTensor>& inputs) {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) {
    return (folder.path() / name).string();
  };
  AtomicWriteFile(path("model.onnx"), model);
  std::vector<NamedTensorView> views;
  views.reserve(inputs.size());
  for (const auto& [name, tensor] : inputs) {
    views.push_back({name, tensor.view()});
  }
  WriteSafetensors(path("inputs.safetensors"), views);
  const std::string script = REPLICANT_SOURCE_DIR "/tests/support/run_onnx.py";
  const CommandResult ran = RunCommand(
      {.command = {REPLICANT_PYTHON, script, path("model.onnx"),
                   path("inputs.safetensors"), path("outputs.safetensors")}},
      std::chrono::minutes(3));
  if (!ran.status.ok()) throw Error(ran.output);
  OnnxResult result{.outputs = {}, .metadata = ran.output};
  const SafetensorsReader reader(path("outputs.safetensors"));
  for (const SafetensorsInfo& info : reader.tensors()) {
    result.outputs.emplace(info.name, reader.Read(info.name));
  }
  return result;
}

}  // namespace replicant::testing
