#include "replicator/pjrt/device_step.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "replicator/steps/gradient_sums.h"

namespace replicant::replicator {
DeviceStep::DeviceStep(const StepDevices& devices, StableHloStep step,
                       const std::vector<InputSpec>& specs)
    : client_(devices.client),
      variables_(devices.variables),
      module_(std::move(step.module)) {
  variables_.Declare(step.variables);
  Compile();
  for (const graph::Program& draws : step.draws) {
    AddHostPart(devices, draws, specs);
  }
  for (const exporting::StableHloResult& result : module_.results) {
    if (result.kind != exporting::StableHloResult::Kind::kOutput) continue;
    values_.push_back({.host = HostTensor(result.dtype, result.shape)});
    value_names_.push_back(result.name);
  }
}

void DeviceStep::Compile() {
  pjrt::CompileOptions options{.device_ids = {}};
  for (int i = 0; i < module_.num_replicas; ++i) {
    options.device_ids.push_back(client_.device_id(i));
  }
  const auto start = std::chrono::steady_clock::now();
  executable_ = std::make_unique<pjrt::Executable>(
      client_.Compile(module_.text, options));
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - start;
  std::vector<pjrt::Executable::OutputType> wanted;
  for (const auto& result : module_.results) {
    wanted.push_back({result.dtype, result.shape});
  }
  if (executable_->outputs() != wanted) {
    throw DeviceError(fmt::format(
        "{}: the compiled step has results of other types than the module",
        client_.plugin().file()));
  }

  const pjrt::MemoryStats memory =
      executable_->memory().value_or(pjrt::MemoryStats());
  report_.num_kernels = 1;
  report_.memory.arena_size_bytes = static_cast<size_t>(memory.temporary);
  for (const Argument& argument : module_.arguments) {
    size_t& sum = argument.kind == Argument::Kind::kVariable
                      ? report_.variable_size_bytes
                      : report_.boundary_size_bytes;
    sum += static_cast<size_t>(argument.shape.num_elements()) *
           DTypeSize(argument.dtype);
  }
  spdlog::info(
      "compiled a step, {} kB of StableHLO, for {} of {} ({}) in {:.1f} s; "
      "temporary memory of each: {} kB",
      module_.text.size() / 1000, module_.num_replicas, client_.platform(),
      client_.device_kind(0), seconds.count(), memory.temporary / 1000);
  // it may be large
  module_.text = {};
}

void DeviceStep::AddHostPart(const StepDevices& devices,
                             const graph::Program& draws,
                             const std::vector<InputSpec>& specs) {
  HostPart part;
  std::map<std::string, MutableTensorView> inputs;
  for (const Argument& argument : module_.arguments) {
    if (argument.kind != Argument::Kind::kInput) continue;
    part.inputs.emplace_back(argument.dtype, argument.shape);
    const MutableTensorView view = part.inputs.back().mutable_view();
    inputs.emplace(argument.name, view);
    part.accumulation.Add(argument.name, view);
  }
  for (const InputSpec& spec : specs)
    part.batch.push_back(inputs.at(spec.name));
  if (!draws.outputs.empty()) {
    part.counters =
        std::make_unique<runtime::VariableStore>(devices.host, devices.seed);
    part.draws = std::make_unique<runtime::Executor>(
        *draws.graph,
        runtime::PlanSpec{.outputs = draws.outputs, .updates = draws.updates},
        *part.counters);
    for (const auto& [name, variable] : part.counters->variables()) {
      counters_.emplace(name, 0);
    }
  }
  replicas_.push_back(std::move(part));
}

void DeviceStep::Run(const SharedInput& input, int64_t batch_number) {
  // the devices may still read what the last run has handed over
  variables_.AwaitReads();
  FillInputs(input, batch_number);
  // before the draws, which follow the counters among these
  for (const Argument& argument : module_.arguments) {
    if (argument.kind == Argument::Kind::kVariable) {
      variables_.Upload(argument.name);
    }
  }
  Draw();
  std::vector<std::vector<pjrt::Upload>> uploads;
  const auto arguments = Upload(&uploads);
  variables_.AwaitStep();
  TakeResults(executable_->Execute(arguments), std::move(uploads));
}

void DeviceStep::FillInputs(const SharedInput& input, int64_t batch_number) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    HostPart& part = replicas_[i];
    input.CopyTo(static_cast<int>(i), part.batch);
    part.accumulation.Set(batch_number);
  }
}

void DeviceStep::SyncCounters() {
  for (auto& [name, num_writes] : counters_) {
    // 0 after a step that did not end well
    if (num_writes != 0 && num_writes == variables_.num_writes(name)) continue;
    const TensorView value = variables_.Fetch(name);
    for (HostPart& part : replicas_) part.counters->Set(name, value);
  }
}

void DeviceStep::Draw() {
  if (replicas_[0].draws == nullptr) return;
  SyncCounters();
  for (auto& [name, num_writes] : counters_) num_writes = 0;
  for (HostPart& part : replicas_) {
    size_t next = 0;
    for (const Argument& argument : module_.arguments) {
      if (argument.kind != Argument::Kind::kInput) continue;
      const HostTensor& value = part.inputs[next++];
      const std::vector<std::string> names = part.draws->input_names();
      if (std::ranges::find(names, argument.name) == names.end()) continue;
      std::ranges::copy(value.bytes(),
                        part.draws->input(argument.name).bytes().begin());
    }
    part.draws->Run();
  }
}

std::vector<std::vector<const pjrt::Buffer*>> DeviceStep::Upload(
    std::vector<std::vector<pjrt::Upload>>* all_uploads) const {
  all_uploads->resize(replicas_.size());
  std::vector<std::vector<const pjrt::Buffer*>> arguments(replicas_.size());
  for (size_t i = 0; i < replicas_.size(); ++i) {
    const auto device = static_cast<int>(i);
    const HostPart& part = replicas_[i];
    std::vector<pjrt::Upload>& uploads = (*all_uploads)[i];
    // arguments point into it
    uploads.reserve(module_.arguments.size());
    size_t next = 0;
    for (const Argument& argument : module_.arguments) {
      if (argument.kind == Argument::Kind::kVariable) {
        arguments[i].push_back(&variables_.at(argument.name, i));
        continue;
      }
      const TensorView value = argument.kind == Argument::Kind::kInput
                                   ? part.inputs[next++].view()
                                   : part.draws->output(argument.draw);
      uploads.push_back(client_.CopyToDevice(value, device));
      arguments[i].push_back(&uploads.back().buffer);
    }
  }
  return arguments;
}

void DeviceStep::TakeResults(pjrt::Execution run,
                             std::vector<std::vector<pjrt::Upload>> uploads) {
  outputs_.clear();
  for (size_t index = 0; index < module_.results.size(); ++index) {
    const exporting::StableHloResult& result = module_.results[index];
    if (result.kind == exporting::StableHloResult::Kind::kOutput) {
      outputs_.push_back(std::move(run.outputs[0][index]));
      continue;
    }
    std::vector<pjrt::Buffer> buffers;
    for (auto& outputs : run.outputs) {
      buffers.push_back(std::move(outputs[index]));
    }
    variables_.Replace(result.name, std::move(buffers));
  }
  std::vector<pjrt::Event> reads;
  for (auto& of_replica : uploads) {
    for (pjrt::Upload& upload : of_replica) {
      reads.push_back(std::move(upload.read));
    }
  }
  variables_.SetRunning(std::move(reads), std::move(run.done));
  for (Value& value : values_) value.is_fetched = false;
  // the draws have advanced their counters as the step has
  for (auto& [name, num_writes] : counters_) {
    num_writes = variables_.num_writes(name);
  }
}

TensorView DeviceStep::value(size_t index) const {
  Value& value = values_[index];
  if (!value.is_fetched) {
    variables_.AwaitStep();
    outputs_[index].CopyToHost(value.host.mutable_view()).Await();
    value.is_fetched = true;
  }
  return value.host.view();
}

}  // namespace replicant::replicator
