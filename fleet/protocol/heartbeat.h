#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/rpc/envelope.h"
#include "base/rpc/fields.h"

// The message that every process of a fleet sends to its supervisor once a
// second, inside the envelope of base/rpc; docs/rpc.md has the same table. Each
// message declares its fields (base/rpc/fields.h). A
// role uses HeartbeatSender, the supervisor HeartbeatMonitor.
//
// Thread-safety: values and pure functions.
namespace replicant::fleet {

inline constexpr uint16_t kBeatKind = 1;
inline constexpr uint32_t kMaxRoleBytes = 32;
inline constexpr uint32_t kMaxReasonBytes = 256;
inline constexpr uint32_t kMaxBeatNumbers = 256;
inline constexpr uint32_t kMaxNumberNameBytes = 64;
inline constexpr uint32_t kMaxEndpointBytes = 256;
inline constexpr uint32_t kMaxEndpoints = 10'000;

const rpc::Protocol& SupervisionProtocol();

enum class RoleState : uint8_t {
  kStarting = 0,  // not ready yet
  kRunning = 1,
  kDraining = 2,  // ends as soon as its work is safe
  kWaiting = 3,   // ready, but waiting for the reason given
};
inline constexpr std::string_view kRoleStates[] = {"starting", "running",
                                                   "draining", "waiting"};
// One of these names.
std::string ToString(RoleState state);

// Whether `name` may be a role, or the name of a number.
bool IsRoleName(std::string_view name);
bool IsNumberName(std::string_view name);

// A role ("actor") and an index name one member of a fleet. Each process that
// takes this place is an incarnation, counted from 1.
struct RoleId {
  std::string role = "main";  // [a-z0-9_-]{1,32}
  uint32_t index = 0;

  template <class V>
  void Fields(V& v) {
    v.String("role", &role, kMaxRoleBytes);
    v.Check(IsRoleName(role),
            "field 'role' is not of the form [a-z0-9_-]{{1,32}}");
    v.Number("index", &index);
  }
  // "actor-3".
  std::string ToString() const;
  bool operator==(const RoleId&) const = default;
  bool operator<(const RoleId& other) const {
    return std::tie(role, index) < std::tie(other.role, other.index);
  }
};

// A number of a heartbeat.
struct BeatNumber {
  enum class Kind : uint8_t {
    kCounter = 0,  // a total since the process began
    kGauge = 1,    // the present value, possibly restored from a checkpoint
  };

  Kind kind = Kind::kGauge;
  double value = 0.0;

  template <class V>
  void Fields(V& v) {
    v.Enum("kind", &kind, {"counter", "gauge"});
    v.Number("value", &value);
  }
  bool operator==(const BeatNumber&) const = default;
};

struct Heartbeat {
  static constexpr std::string_view kName = "supervision.beat";
  RoleId id;
  uint32_t incarnation = 1;
  uint32_t pid = 0;
  RoleState state = RoleState::kStarting;
  // One line: the reason of the present wait, or of the last one since the
  // previous heartbeat.
  std::string reason;
  // Seconds spent in kWaiting since the process began.
  double waiting_s = 0.0;
  // Where the process listens, "tcp://10.0.0.7:41234", if it has chosen the
  // address itself; empty: it does not, or others know the address.
  std::string endpoint;
  // By name, [A-Za-z0-9_./-]{1,64}; at most kMaxBeatNumbers.
  std::map<std::string, BeatNumber> numbers;

  template <class V>
  void Fields(V& v) {
    id.Fields(v);
    v.Number("incarnation", &incarnation);
    v.Number("pid", &pid);
    v.Enum("state", &state, kRoleStates);
    v.Line("reason", &reason, kMaxReasonBytes);
    v.Number("waiting_s", &waiting_s);
    v.Line("endpoint", &endpoint, kMaxEndpointBytes);
    v.Map("num_numbers", &numbers, kMaxBeatNumbers, kMaxNumberNameBytes);
  }
  // Cuts a reason that is too long and replaces its control characters with
  // blanks. Throws InvalidArgument for any other field that breaks its form.
  rpc::Message Encode() const;
  // Throws MalformedMessage.
  static Heartbeat Decode(std::span<const rpc::Frame> payload);
  bool operator==(const Heartbeat&) const = default;
};

// Where a role listens that has chosen its address itself.
struct RoleEndpoint {
  RoleId id;
  std::string endpoint;

  template <class V>
  void Fields(V& v) {
    id.Fields(v);
    v.Line("endpoint", &endpoint, kMaxEndpointBytes);
  }
  bool operator==(const RoleEndpoint&) const = default;
};

// The supervisor's answer.
struct BeatReply {
  static constexpr std::string_view kName = "supervision.beat reply";
  enum class Order : uint8_t {
    kGoOn = 0,
    kStop = 1,  // drain and end
  };

  Order order = Order::kGoOn;
  std::string reason;  // one line, as in Heartbeat
  // Of the roles that run now, in the order of their ids.
  std::vector<RoleEndpoint> endpoints = {};

  template <class V>
  void Fields(V& v) {
    v.Enum("order", &order, {"go on", "stop"});
    v.Line("reason", &reason, kMaxReasonBytes);
    v.List("num_endpoints", &endpoints, kMaxEndpoints);
  }
  bool operator==(const BeatReply&) const = default;
};

}  // namespace replicant::fleet
