#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/rpc/envelope.h"
#include "base/rpc/fields.h"
#include "base/tensor/tensor_view.h"

// The messages between workers and parameter servers (docs/rpc.md, "Parameter
// servers"). Each begins with a part that declares its fields
// (base/rpc/fields.h).
namespace replicant::replicator {

enum class ServerMessage : uint16_t {
  kJoin = 1,
  kPull = 2,
  kPush = 3,
  kAssign = 4,
  kEnd = 5,
};

rpc::Protocol ParameterServerProtocol();

struct ServerRequest {
  static constexpr std::string_view kName = "parameter_server.request";
  uint32_t worker = 0;
  // Random identifier of this run of the worker.
  uint64_t run = 0;
  // Number of the worker's step; a push repeats its pull's number.
  uint64_t sequence = 0;
  // Index of a step of the training; a pull may use a value below.
  uint32_t step = 0;

  // All variables, between steps.
  static constexpr uint32_t kAllVariables = UINT32_MAX;
  // No variables: the worker keeps its copy, and will push.
  static constexpr uint32_t kNoVariables = UINT32_MAX - 1;

  template <class V>
  void Fields(V& v) {
    v.Number("worker", &worker);
    v.Number("run", &run);
    v.Number("sequence", &sequence);
    v.Number("step", &step);
  }
};

struct ServerReply {
  static constexpr std::string_view kName = "parameter_server.reply";
  enum class Status : uint8_t {
    kOk = 0,
    kJoinFirst = 1,  // the server does not know this run of the worker
    kPullFirst = 2,  // the server does not know the pull: push lost
    kEnded = 3,      // the training is over
  };

  Status status = Status::kOk;
  int64_t version = 0;

  template <class V>
  void Fields(V& v) {
    v.Enum("status", &status, {"ok", "join first", "pull first", "ended"});
    v.Number("version", &version);
  }
};

// Adds the bytes of the tensors, one after another, in parts of at most 64 MiB.
void AddTensors(const std::vector<TensorView>& tensors, rpc::Message* message);
// Throws rpc::MalformedMessage unless `parts` hold as many bytes as the
// tensors.
void CheckTensors(std::span<const rpc::Frame> parts,
                  const std::vector<MutableTensorView>& tensors);
// Fills the tensors from `parts`. Throws as CheckTensors() does, leaving
// them as they were.
void ReadTensors(std::span<const rpc::Frame> parts,
                 const std::vector<MutableTensorView>& tensors);

}  // namespace replicant::replicator
