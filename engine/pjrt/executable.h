#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "engine/pjrt/buffer.h"

struct PJRT_LoadedExecutable;

namespace replicant::pjrt {

template <>
void Destroyer<PJRT_LoadedExecutable>::operator()(
    PJRT_LoadedExecutable* executable) const;

// Results of one run of an executable, by device in the order of
// CompileOptions::device_ids.
struct Execution {
  std::vector<std::vector<Buffer>> outputs;
  // Completes when the device has computed all outputs.
  std::vector<Event> done;
};

// The memory of a compiled module on each device, in bytes.
struct MemoryStats {
  int64_t code = 0;
  int64_t arguments = 0;
  int64_t outputs = 0;
  int64_t aliased = 0;  // outputs in the memory of arguments
  int64_t temporary = 0;
};

// A module, compiled for some devices.
//
// Thread-safety: one thread at a time.
class Executable {
 public:
  // Takes ownership. Throws DeviceError.
  Executable(const Plugin& plugin, PJRT_LoadedExecutable* executable,
             size_t num_devices);

  struct OutputType {
    bool operator==(const OutputType&) const = default;

    DType dtype = DType::kF32;
    Shape shape;
  };
  // Outputs of each device.
  const std::vector<OutputType>& outputs() const { return outputs_; }
  // std::nullopt if the plugin does not report it.
  const std::optional<MemoryStats>& memory() const { return memory_; }

  // Begins a run. `arguments` are the arguments of each device. The module's
  // `tf.aliasing_output` tells which of them it consumes: those may not be used
  // again, even if the run fails. Throws DeviceError.
  Execution Execute(
      const std::vector<std::vector<const Buffer*>>& arguments) const;

 private:
  void ReadOutputs();

  Handle<PJRT_LoadedExecutable> executable_;
  size_t num_devices_;
  std::vector<OutputType> outputs_;
  std::optional<MemoryStats> memory_;
};

}  // namespace replicant::pjrt
