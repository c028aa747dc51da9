#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

// A plugin that computes nothing: it keeps buffers on the host, records what it
// is asked for, and fails on demand. Transfers are as late as PJRT allows: host
// memory is read or written when their event is awaited, so that who frees it,
// changes it or reads it earlier is found out.
namespace replicant::testing {

// A tensor of the fake device.
struct FakeTensor {
  PJRT_Buffer_Type type = PJRT_Buffer_Type_F32;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
};

// The state of one loaded copy of the plugin, shared with the test.
struct FakePjrt {
  // --- what the test decides ---

  // Its version, size and functions may be changed before the plugin is loaded.
  PJRT_Api api;
  int num_devices = 2;
  // The call, and the event, that fails: its place in `calls`, and in the order
  // in which events are made.
  std::optional<size_t> failing_call;
  std::optional<size_t> failing_event;
  // The function all of whose calls fail; empty for none.
  std::string failing_function;
  // Computes the outputs of one device, which have their types and are zero;
  // those in the memory of an argument have its value.
  std::function<void(size_t device, const std::vector<FakeTensor>& arguments,
                     std::vector<FakeTensor>& outputs)>
      run;

  // --- what the plugin has seen ---

  // Names of the functions called, but those about errors.
  std::vector<std::string> calls;
  size_t num_events = 0;
  // Options of the client, as "name=value".
  std::vector<std::string> options;
  // Modules and options that were compiled.
  std::vector<std::string> modules;
  std::vector<std::string> compile_options;
  // Objects that the caller has to destroy, by kind.
  std::map<const void*, std::string> live;
  // Uses that the interface forbids.
  std::vector<std::string> problems;
};

// A copy of the plugin's file, which is removed in the end; the plugin stays
// loaded.
class FakePlugin {
 public:
  FakePlugin();
  ~FakePlugin();
  FakePlugin(const FakePlugin&) = delete;
  FakePlugin& operator=(const FakePlugin&) = delete;

  const std::filesystem::path& file() const { return file_; }
  FakePjrt* operator->() const { return state_; }
  FakePjrt& operator*() const { return *state_; }

 private:
  std::filesystem::path file_;
  FakePjrt* state_ = nullptr;
};

}  // namespace replicant::testing
