#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/rpc/curve.h"
#include "base/rpc/envelope.h"
#include "base/rpc/fields.h"
#include "replicator/comm/rank_table.h"

// The messages from the ranks of a group to the first one (docs/rpc.md,
// "Liveness"). Each declares its fields (base/rpc/fields.h).
//
// Thread-safety: values and pure functions.
namespace replicant::comm {

inline constexpr uint16_t kLivenessBeat = 1;
// A reason contains the text of an arbitrary exception.
inline constexpr uint32_t kMaxReasonBytes = 1 << 16;
inline constexpr uint32_t kMaxCallBytes = 1 << 12;
inline constexpr uint32_t kMaxEndpoints = 256;

rpc::Protocol LivenessProtocol();

// The fields of a RankState.
template <class V>
void StateFields(V& v, RankState* state) {
  v.Number("calls begun", &state->num_calls);
  v.CutString("call", &state->call, kMaxCallBytes);
}

struct LivenessBeat {
  static constexpr std::string_view kName = "liveness.beat";
  uint32_t rank = 0;
  RankState state;
  // Why the rank cannot go on; empty otherwise.
  std::string problem;
  // The rank leaves; this is its last message.
  bool is_leaving = false;

  template <class V>
  void Fields(V& v) {
    v.Number("rank", &rank);
    StateFields(v, &state);
    v.CutString("problem", &problem, kMaxReasonBytes);
    v.Bool("is leaving", &is_leaving);
  }
};

struct LivenessAnswer {
  static constexpr std::string_view kName = "liveness.answer";
  enum class Order : uint8_t {
    kGoOn = 0,
    kOver = 1,  // the first rank leaves, and watches no more
    kEnd = 2,   // see `verdict`
  };

  Order order = Order::kGoOn;
  // The first rank's verdict.
  RankState state;
  std::string verdict;

  template <class V>
  void Fields(V& v) {
    v.Enum("order", &order, {"go on", "over", "end"});
    StateFields(v, &state);
    v.CutString("verdict", &verdict, kMaxReasonBytes);
  }
};

// The addresses of the first rank. Secret: holds a private key.
struct LivenessAddress {
  static constexpr std::string_view kName = "liveness.address";
  // "tcp://10.0.0.2:41234": at least one of them can be reached.
  std::vector<std::string> endpoints;
  std::string server_public_key;
  // The key of all other ranks.
  rpc::CurveKeyPair client_keys;

  template <class V>
  void Fields(V& v) {
    v.List("endpoints", &endpoints, kMaxEndpoints, [&v](std::string& endpoint) {
      v.String("endpoint", &endpoint, kMaxCallBytes);
    });
    v.String("server key", &server_public_key, kMaxCallBytes);
    v.String("key", &client_keys.public_key, kMaxCallBytes);
    v.String("key", &client_keys.secret_key, kMaxCallBytes);
  }
  std::string Encode() const;
  // Throws rpc::MalformedMessage.
  static LivenessAddress Decode(const std::string& text);
};

}  // namespace replicant::comm
