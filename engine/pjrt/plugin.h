#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

// from the vendor's header, which only .cc files of this folder include
struct PJRT_Api;
struct PJRT_Error;

// A client of PJRT, the C interface through which XLA's compilers for TPUs,
// NVIDIA's GPUs and other devices can be loaded at run time. A plugin compiles
// modules of StableHLO text and runs them on devices:
//
//   const Plugin& plugin = Plugin::Load("libtpu.so");
//   Client client(plugin);
//   Executable step = client.Compile(module, {.device_ids = ...});
//   Upload x = client.CopyToDevice(view, /*device=*/0);
//   Execution run = step.Execute({{&x.buffer}});
//   run.outputs[0][0].CopyToHost(result).Await();
//
// All work runs asynchronously; events tell when it is done. A function that
// fails, at once or later, ends in a DeviceError "<plugin>: <function>: <code>:
// <message>". Objects made before the failure are freed.
namespace replicant::pjrt {

// A loaded plugin. It stays loaded until the process ends, because plugins do
// not unload.
//
// Thread-safety: any thread.
class Plugin {
 public:
  // Loads and initializes the plugin `file`, or returns the one that has been
  // loaded from it. Throws DeviceError, naming the file, if it cannot be
  // loaded, is not a plugin, has another version of the interface, lacks a
  // function, or fails to initialize.
  static const Plugin& Load(const std::filesystem::path& file);

  // For messages.
  const std::string& file() const { return file_; }
  // "0.81": the version of the interface that the plugin was built with.
  std::string version() const;
  // Facts that the plugin reports about itself: "xla_version",
  // "stablehlo_current_version" and others, as text.
  using Attributes = std::vector<std::pair<std::string, std::string>>;
  const Attributes& attributes() const { return attributes_; }

  const PJRT_Api& api() const { return *api_; }
  // Throws DeviceError if `error`, which `function` returned, is not null;
  // frees it.
  void Check(PJRT_Error* error, const char* function) const;

 private:
  // Throws what Load() throws.
  Plugin(std::string file, const PJRT_Api* api);

  void CheckFunctions() const;
  void ReadAttributes();

  std::string file_;
  const PJRT_Api* api_;
  Attributes attributes_;
};

}  // namespace replicant::pjrt
