#include "replicator/pjrt/device_variables.h"

#include <utility>

namespace replicant::replicator {

void DeviceVariables::Declare(
    const std::vector<graph::VariableSpec>& variables) {
  graph::Graph graph;
  for (const graph::VariableSpec& variable : variables) {
    graph.AddVariable(variable);
  }
  store_.Declare(graph);
}

runtime::VariableStore& DeviceVariables::Fetch() {
  AwaitStep();
  std::vector<std::pair<Variable*, pjrt::Event>> copies;
  for (auto& [name, variable] : variables_) {
    if (!variable.is_newer) continue;
    copies.emplace_back(&variable, BeginFetch(name, &variable));
  }
  // a copy that fails leaves the variable on the devices
  for (auto& [variable, copied] : copies) {
    copied.Await();
    variable->is_newer = false;
  }
  return store_;
}

TensorView DeviceVariables::Fetch(const std::string& name) {
  const runtime::VariableStore::Variable& host = store_.at(name);
  const auto found = variables_.find(name);
  if (found != variables_.end() && found->second.is_newer) {
    AwaitStep();
    BeginFetch(name, &found->second).Await();
    found->second.is_newer = false;
  }
  return {host.spec.dtype, host.spec.shape, host.buffer->data()};
}

pjrt::Event DeviceVariables::BeginFetch(const std::string& name,
                                        Variable* variable) {
  runtime::VariableStore::Variable& host = store_.at(name);
  pjrt::Event copied = variable->buffers[0].CopyToHost(
      {host.spec.dtype, host.spec.shape, host.buffer->data()});
  // for plans of the host; the devices have this value
  host.version.Add();
  variable->host_version = host.version.value();
  return copied;
}

void DeviceVariables::Upload(const std::string& name) {
  const runtime::VariableStore::Variable& host = store_.at(name);
  Variable& variable = variables_[name];
  const uint64_t version = host.version.value();
  const bool is_known =
      !variable.buffers.empty() && variable.host_version == version;
  if (variable.is_newer || is_known) return;
  const TensorView value(host.spec.dtype, host.spec.shape, host.buffer->data());
  std::vector<pjrt::Upload> uploads;
  for (size_t replica = 0; replica < num_replicas_; ++replica) {
    uploads.push_back(client_.CopyToDevice(value, static_cast<int>(replica)));
  }
  std::vector<pjrt::Buffer> buffers;
  for (pjrt::Upload& upload : uploads) {
    upload.read.Await();
    buffers.push_back(std::move(upload.buffer));
  }
  variable.buffers = std::move(buffers);
  variable.host_version = version;
  ++variable.num_writes;
}

void DeviceVariables::Replace(const std::string& name,
                              std::vector<pjrt::Buffer> buffers) {
  Variable& variable = variables_.at(name);
  variable.buffers = std::move(buffers);
  variable.is_newer = true;
  ++variable.num_writes;
}

void DeviceVariables::Await(std::vector<pjrt::Event>* events) {
  // each failure is told once
  while (!events->empty()) {
    pjrt::Event event = std::move(events->back());
    events->pop_back();
    event.Await();
  }
}

}  // namespace replicant::replicator
