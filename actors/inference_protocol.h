#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/rpc/envelope.h"
#include "base/rpc/fields.h"

// The messages between actors and the inference server of their host
// (actors/inference_server.h). Each message declares its fields
// (base/rpc/fields.h).
namespace replicant::actors {

inline constexpr uint16_t kDescribeKind = 1;
inline constexpr uint16_t kActKind = 2;
// Rows of one request.
inline constexpr uint32_t kMaxInferenceRows = 4096;
inline constexpr uint32_t kMaxStateElements = kMaxInferenceRows * 4096;
inline constexpr uint32_t kMaxActionElements = kMaxInferenceRows * 256;

const rpc::Protocol& InferenceProtocol();

// The answer to kDescribeKind: the inputs and outputs of the server's policy.
struct InferenceInfo {
  static constexpr std::string_view kName = "inference.describe reply";
  uint64_t observation_bytes = 0;  // of one row
  uint64_t state_size = 0;         // numbers in addition to it; 0: none
  uint64_t action_size = 0;
  // The learner's step of the server's parameters, and the agent steps that it
  // had counted then; not set before the first parameters.
  bool has_parameters = false;
  uint64_t version = 0;
  int64_t agent_steps = 0;

  template <class V>
  void Fields(V& v) {
    v.Number("observation_bytes", &observation_bytes);
    v.Number("state_size", &state_size);
    v.Number("action_size", &action_size);
    v.Bool("has_parameters", &has_parameters);
    v.Number("version", &version);
    v.Number("agent_steps", &agent_steps);
  }
  bool operator==(const InferenceInfo&) const = default;
};

// kActKind: observations of E environments, with the states in addition to
// them.
struct ActRequest {
  static constexpr std::string_view kName = "inference.act";
  std::vector<float> noise_scales;          // [E]
  std::vector<float> states;                // [E, S]; empty without
  std::span<const std::byte> observations;  // [E, ...], without gaps

  // Those of part 0.
  template <class V>
  void Fields(V& v) {
    v.Array("noise_scale", &noise_scales, kMaxInferenceRows);
    v.Check(!noise_scales.empty(), "no rows");
    v.Array("state", &states, kMaxStateElements);
  }
  // Copies the observations.
  rpc::Message Encode() const;
  // Borrows the observations from `payload`.
  static ActRequest Decode(std::span<const rpc::Frame> payload);
};

// The answer to kActKind.
struct ActReply {
  static constexpr std::string_view kName = "inference.act reply";
  uint64_t version = 0;
  int64_t agent_steps = 0;
  std::vector<float> actions;  // [E, A]

  template <class V>
  void Fields(V& v) {
    v.Number("version", &version);
    v.Number("agent_steps", &agent_steps);
    v.Array("action", &actions, kMaxActionElements);
  }
  bool operator==(const ActReply&) const = default;
};

}  // namespace replicant::actors
