#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace replicant::pjrt {

struct CompileOptions {
  // The device of each replica, by PJRT's ids (Client::device_id): as many as
  // the module says by `mhlo.num_replicas`.
  std::vector<int64_t> device_ids = {0};
};

// The message CompileOptionsProto (xla/pjrt/proto/compile_options.proto).
std::string Encode(const CompileOptions& options);

}  // namespace replicant::pjrt
