#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "core/rpc/envelope.h"
#include "core/rpc/frame.h"

// What the processes of a fleet tell their supervisor once a second, inside the
// envelope of core/rpc; docs/rpc.md has the same table. HeartbeatSender is the
// side of the role, HeartbeatMonitor that of the supervisor.
//
// Thread-safety: values and pure functions.
namespace replicant::rpc {

inline constexpr uint16_t kBeatKind = 1;
inline constexpr uint32_t kMaxRoleBytes = 32;
inline constexpr uint32_t kMaxReasonBytes = 256;
inline constexpr uint32_t kMaxBeatNumbers = 256;
inline constexpr uint32_t kMaxNumberNameBytes = 64;

// The text that the schema hash is made of.
std::string_view SupervisionMessageTable();
const Protocol& SupervisionProtocol();

enum class RoleState : uint8_t {
  kStarting = 0,  // not of use yet
  kRunning = 1,
  kDraining = 2,  // ends as soon as its work is safe
  kWaiting = 3,   // ready, but held up: see the reason
};
// "starting", "running", "draining", "waiting".
std::string ToString(RoleState state);

// A role is "actor"; with its index it is one member of a fleet; each process
// that takes that place is an incarnation, counted from 1.
struct RoleId {
  std::string role = "main";  // [a-z0-9_-]{1,32}
  uint32_t index = 0;

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
    kGauge = 1,    // a value that holds now, restored ones among them
  };

  Kind kind = Kind::kGauge;
  double value = 0.0;

  bool operator==(const BeatNumber&) const = default;
};

struct Heartbeat {
  RoleId id;
  uint32_t incarnation = 1;
  uint32_t pid = 0;
  RoleState state = RoleState::kStarting;
  // One line: why it waits, or last waited since the heartbeat before.
  std::string reason;
  // Seconds spent in kWaiting since the process began.
  double waiting_s = 0.0;
  // By name, [A-Za-z0-9_./-]{1,64}; at most kMaxBeatNumbers.
  std::map<std::string, BeatNumber> numbers;

  // A reason that is too long is cut, control characters in it become blanks.
  // Throws InvalidArgument for another field that breaks its form.
  Message Encode() const;
  // Throws MalformedMessage.
  static Heartbeat Decode(std::span<const Frame> payload);
  bool operator==(const Heartbeat&) const = default;
};

// What the supervisor answers.
struct BeatReply {
  enum class Order : uint8_t {
    kGoOn = 0,
    kStop = 1,  // drain and end
  };

  Order order = Order::kGoOn;
  std::string reason;  // one line, as of Heartbeat

  Message Encode() const;
  // Throws MalformedMessage.
  static BeatReply Decode(std::span<const Frame> payload);
  bool operator==(const BeatReply&) const = default;
};

// Whether `name` may be a role, or the name of a number.
bool IsRoleName(std::string_view name);
bool IsNumberName(std::string_view name);

}  // namespace replicant::rpc
