#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/comm/rank_table.h"
#include "core/rpc/curve.h"
#include "core/rpc/envelope.h"

// What the ranks of a group tell the first one (docs/rpc.md, "Liveness").
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
  // It has no more to tell.
  bool is_leaving = false;

  rpc::Message Encode() const;
  // Throws rpc::MalformedMessage.
  static LivenessBeat Decode(std::span<const rpc::Frame> payload);
};

struct LivenessAnswer {
  enum class Order : uint8_t {
    kGoOn = 0,
    kOver = 1,  // the first rank leaves, and watches nobody any more
    kEnd = 2,   // see `verdict`
  };

  Order order = Order::kGoOn;
  // Of the first rank.
  RankState state;
  std::string verdict;

  rpc::Message Encode() const;
  // Throws rpc::MalformedMessage.
  static LivenessAnswer Decode(std::span<const rpc::Frame> payload);
};

// How the first rank is reached. Not for other eyes: it holds a secret key.
struct LivenessAddress {
  // "tcp://10.0.0.2:41234": one of them is the way.
  std::vector<std::string> endpoints;
  std::string server_public_key;
  // Of all the others.
  rpc::CurveKeyPair client_keys;

  std::string Encode() const;
  // Throws rpc::MalformedMessage.
  static LivenessAddress Decode(const std::string& text);
};

}  // namespace replicant::comm
