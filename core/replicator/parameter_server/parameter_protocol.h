#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/rpc/envelope.h"
#include "core/tensor/tensor_view.h"

// What workers and parameter servers say to each other (docs/rpc.md,
// "Parameter servers").
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
  uint32_t worker = 0;
  // Random: this run of the worker.
  uint64_t run = 0;
  // Counts the worker's steps; a push has its pull's.
  uint64_t sequence = 0;
  // Which of the training's steps; of a pull also one of those below.
  uint32_t step = 0;

  // All variables, between steps.
  static constexpr uint32_t kAllVariables = UINT32_MAX;
  // None: the worker goes on with what it has, and will push.
  static constexpr uint32_t kNoVariables = UINT32_MAX - 1;

  rpc::Frame Encode() const;
  // Throws rpc::MalformedMessage.
  static ServerRequest Decode(std::span<const rpc::Frame> payload);
};

struct ServerReply {
  enum class Status : uint8_t {
    kOk = 0,
    kJoinFirst = 1,  // the server does not know this run of the worker
    kPullFirst = 2,  // it does not know of the pull: the push is lost
    kEnded = 3,      // the training is over
  };

  Status status = Status::kOk;
  int64_t version = 0;

  rpc::Frame Encode() const;
  // Throws rpc::MalformedMessage.
  static ServerReply Decode(std::span<const rpc::Frame> payload);
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
