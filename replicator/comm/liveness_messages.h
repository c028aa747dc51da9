#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rpc/curve.h"
#include "base/rpc/envelope.h"
#include "replicator/comm/rank_table.h"

// The messages from the ranks of a group to the first one (docs/rpc.md,
// "Liveness").
//
// Thread-safety: values and pure functions.
namespace replicant::comm {

inline constexpr uint16_t kLivenessBeat = 1;

rpc::Protocol LivenessProtocol();

struct LivenessBeat {
  uint32_t rank = 0;
  RankState state;
  // Why the rank cannot go on; empty otherwise.
  std::string problem;
  // The rank leaves; this is its last message.
  bool is_leaving = false;

  rpc::Message Encode() const;
  // Throws rpc::MalformedMessage.
  static LivenessBeat Decode(std::span<const rpc::Frame> payload);
};

struct LivenessAnswer {
  enum class Order : uint8_t {
    kGoOn = 0,
    kOver = 1,  // the first rank leaves, and watches no more
    kEnd = 2,   // see `verdict`
  };

  Order order = Order::kGoOn;
  // The first rank's verdict.
  RankState state;
  std::string verdict;

  rpc::Message Encode() const;
  // Throws rpc::MalformedMessage.
  static LivenessAnswer Decode(std::span<const rpc::Frame> payload);
};

// The addresses of the first rank. Secret: holds a private key.
struct LivenessAddress {
  // "tcp://10.0.0.2:41234": at least one of them can be reached.
  std::vector<std::string> endpoints;
  std::string server_public_key;
  // The key of all other ranks.
  rpc::CurveKeyPair client_keys;

  std::string Encode() const;
  // Throws rpc::MalformedMessage.
  static LivenessAddress Decode(const std::string& text);
};

}  // namespace replicant::comm
