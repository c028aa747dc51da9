#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "engine/pjrt/buffer.h"
#include "engine/pjrt/compile_options.h"
#include "engine/pjrt/executable.h"
#include "engine/pjrt/plugin.h"

struct PJRT_Client;
struct PJRT_Device;

namespace replicant::pjrt {

template <>
void Destroyer<PJRT_Client>::operator()(PJRT_Client* client) const;

// A tensor on its way to a device.
struct Upload {
  Buffer buffer;
  // Completes when the host's memory may change again.
  Event read;
};

// An option of a plugin, by name, as its vendor documents it.
using ClientOption =
    std::pair<std::string, std::variant<std::string, bool, int64_t, float,
                                        std::vector<int64_t>>>;

// Parses "NAME=VALUE", where VALUE is true or false, a whole number, a decimal
// number ("0.5", "1e3"), whole numbers with commas between them ("0,1") or one
// with a comma behind it ("0,"), or another text. Throws InvalidArgument.
ClientOption ParseClientOption(std::string_view text);

// The devices of a plugin that this process may use. Buffers and executables
// must be destroyed before their client.
//
// Thread-safety: const methods may run concurrently.
class Client {
 public:
  // Throws DeviceError, for example if there is no device.
  explicit Client(const Plugin& plugin,
                  const std::vector<ClientOption>& options = {});

  const Plugin& plugin() const { return *client_.get_deleter().plugin; }
  // "cpu", "cuda", "tpu"
  const std::string& platform() const { return platform_; }
  const std::string& platform_version() const { return platform_version_; }

  int num_devices() const { return static_cast<int>(devices_.size()); }
  // PJRT's id of a device, 0 <= device < num_devices().
  int64_t device_id(int device) const { return at(device).id; }
  // Its model: "NVIDIA H100 80GB HBM3".
  const std::string& device_kind(int device) const { return at(device).kind; }

  // Begins a copy of `host`. Throws DeviceError.
  Upload CopyToDevice(TensorView host, int device) const;

  // Compiles a module: text or bytecode of StableHLO with a function @main.
  // Throws DeviceError.
  Executable Compile(std::string_view module,
                     const CompileOptions& options) const;

 private:
  struct Device {
    PJRT_Device* device = nullptr;
    int64_t id = 0;
    std::string kind;
  };

  const Device& at(int device) const {
    return devices_[static_cast<size_t>(device)];
  }
  void ReadPlatform();
  void ReadDevices();

  Handle<PJRT_Client> client_;
  std::string platform_;
  std::string platform_version_;
  std::vector<Device> devices_;
};

}  // namespace replicant::pjrt
