#include "engine/pjrt/executable.h"

#include <fmt/format.h>

#include <cstddef>
#include <span>

#include "base/check.h"
#include "engine/pjrt/call.h"
#include "engine/pjrt/element_type.h"

namespace replicant::pjrt {

template <>
void Destroyer<PJRT_LoadedExecutable>::operator()(
    PJRT_LoadedExecutable* executable) const {
  PJRT_LoadedExecutable_Destroy_Args args{};
  args.executable = executable;
  PJRT_CALL_NOTHROW(*plugin, PJRT_LoadedExecutable_Destroy, args);
}

template <>
void Destroyer<PJRT_Executable>::operator()(PJRT_Executable* executable) const {
  PJRT_Executable_Destroy_Args args{};
  args.executable = executable;
  PJRT_CALL_NOTHROW(*plugin, PJRT_Executable_Destroy, args);
}

namespace {

std::optional<MemoryStats> ReadMemory(const Plugin& plugin,
                                      PJRT_Executable* executable) {
  // for a log only: a plugin need not know
  const PJRT_Api& api = plugin.api();
  if (api.struct_size <=
          offsetof(PJRT_Api, PJRT_Executable_GetCompiledMemoryStats) ||
      api.PJRT_Executable_GetCompiledMemoryStats == nullptr) {
    return {};
  }
  PJRT_Executable_GetCompiledMemoryStats_Args args{};
  args.executable = executable;
  try {
    PJRT_CALL(plugin, PJRT_Executable_GetCompiledMemoryStats, args);
  } catch (const DeviceError& error) {
    spdlog::debug("{}", error.what());
    return {};
  }
  return MemoryStats{.code = args.generated_code_size_in_bytes,
                     .arguments = args.argument_size_in_bytes,
                     .outputs = args.output_size_in_bytes,
                     .aliased = args.alias_size_in_bytes,
                     .temporary = args.temp_size_in_bytes};
}

}  // namespace

Executable::Executable(const Plugin& plugin, PJRT_LoadedExecutable* executable,
                       size_t num_devices)
    : executable_(executable, {&plugin}), num_devices_(num_devices) {
  ReadOutputs();
}

void Executable::ReadOutputs() {
  const Plugin& plugin = *executable_.get_deleter().plugin;
  PJRT_LoadedExecutable_GetExecutable_Args get{};
  get.loaded_executable = executable_.get();
  PJRT_CALL(plugin, PJRT_LoadedExecutable_GetExecutable, get);
  const Handle<PJRT_Executable> executable(get.executable, {&plugin});

  PJRT_Executable_NumOutputs_Args count{};
  count.executable = executable.get();
  PJRT_CALL(plugin, PJRT_Executable_NumOutputs, count);
  PJRT_Executable_OutputElementTypes_Args types{};
  types.executable = executable.get();
  PJRT_CALL(plugin, PJRT_Executable_OutputElementTypes, types);
  PJRT_Executable_OutputDimensions_Args dimensions{};
  dimensions.executable = executable.get();
  PJRT_CALL(plugin, PJRT_Executable_OutputDimensions, dimensions);
  if (types.num_output_types != count.num_outputs ||
      dimensions.num_outputs != count.num_outputs) {
    throw DeviceError(fmt::format(
        "{}: a module of {} outputs has {} element types and {} shapes",
        plugin.file(), count.num_outputs, types.num_output_types,
        dimensions.num_outputs));
  }
  const int64_t* dims = dimensions.dims;
  for (size_t i = 0; i < count.num_outputs; ++i) {
    const std::optional<DType> dtype = FromPjrt(types.output_types[i]);
    if (!dtype) {
      throw DeviceError(fmt::format(
          "{}: output {} of the module has PJRT's element type {}, which is "
          "not supported",
          plugin.file(), i, static_cast<int>(types.output_types[i])));
    }
    const size_t rank = dimensions.dim_sizes[i];
    outputs_.push_back({*dtype, Shape(std::span(dims, rank))});
    dims += rank;
  }
  memory_ = ReadMemory(plugin, executable.get());
}

Execution Executable::Execute(
    const std::vector<std::vector<const Buffer*>>& arguments) const {
  REPLICANT_CHECK_EQ(arguments.size(), num_devices_);
  const Plugin& plugin = *executable_.get_deleter().plugin;
  std::vector<std::vector<PJRT_Buffer*>> handles(num_devices_);
  std::vector<std::vector<PJRT_Buffer*>> outputs(
      num_devices_, std::vector<PJRT_Buffer*>(outputs_.size()));
  std::vector<PJRT_Buffer* const*> argument_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (size_t device = 0; device < num_devices_; ++device) {
    REPLICANT_CHECK_EQ(arguments[device].size(), arguments[0].size());
    for (const Buffer* buffer : arguments[device]) {
      handles[device].push_back(buffer->handle());
    }
    argument_lists.push_back(handles[device].data());
    output_lists.push_back(outputs[device].data());
  }
  std::vector<PJRT_Event*> done(num_devices_);

  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  PJRT_LoadedExecutable_Execute_Args args{};
  args.executable = executable_.get();
  args.options = &options;
  args.argument_lists = argument_lists.data();
  args.num_devices = num_devices_;
  args.num_args = arguments[0].size();
  args.output_lists = output_lists.data();
  args.device_complete_events = done.data();
  PJRT_CALL(plugin, PJRT_LoadedExecutable_Execute, args);

  Execution execution;
  for (size_t device = 0; device < num_devices_; ++device) {
    execution.done.emplace_back(plugin, done[device],
                                "PJRT_LoadedExecutable_Execute");
    std::vector<Buffer>& buffers = execution.outputs.emplace_back();
    for (PJRT_Buffer* output : outputs[device]) {
      buffers.emplace_back(plugin, output);
    }
  }
  return execution;
}

}  // namespace replicant::pjrt
