#include "fleet/protocol/heartbeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace replicant::fleet {
namespace {

constexpr std::string_view kMessageTable = R"(supervision 5
1 beat
  request: string role, u32 index, u32 incarnation, u32 pid,
    u8 state (0 starting, 1 running, 2 draining, 3 waiting),
    string reason, f64 waiting_s, string endpoint, u32 num_numbers,
    num_numbers x (string name, u8 kind (0 counter, 1 gauge), f64 value)
  reply: u8 order (0 go on, 1 stop), string reason, u32 num_endpoints,
    num_endpoints x (string role, u32 index, string endpoint)
2 join
  request: u64 agent, string host, string role, u32 processors, u32 slots
  reply: string refusal, f64 timeout_s, u32 num_files, num_files x
    (string path, string bytes)
3 report
  request: u64 agent, bool is_leaving, u64 last_order, u32 num_processes,
    num_processes x (string role, u32 index, u32 incarnation, bool has_ended,
    i32 code, i32 signal), u32 num_logs, num_logs x (string role,
    u32 index, u32 incarnation, u64 offset, string bytes)
  reply: u8 verdict (0 go on, 1 join again, 2 leave), string reason,
    u32 num_orders, num_orders x
    (u64 number, u8 kind (0 start, 1 signal), string role, u32 index,
    u32 incarnation, i32 signal, u32 num_arguments, num_arguments x
    string argument), bool takes_logs
4 stop
  request: string who
  reply: no part
5 scale
  request: string who, string role, u32 count
  reply: string refusal, u32 previous
)";

bool IsLowerOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// The problem of the fields that Encode() and Decode() both check; empty if
// there is none.
std::string ProblemOf(const Heartbeat& beat) {
  if (!IsRoleName(beat.id.role)) {
    return "field 'role' is not of the form [a-z0-9_-]{1,32}";
  }
  if (beat.incarnation == 0) return "field 'incarnation' must not be 0";
  if (!std::isfinite(beat.waiting_s) || beat.waiting_s < 0.0) {
    return fmt::format("field 'waiting_s': {} is not finite and >= 0",
                       beat.waiting_s);
  }
  if (beat.numbers.size() > kMaxBeatNumbers) {
    return fmt::format("field 'num_numbers': {} is over the limit of {}",
                       beat.numbers.size(), kMaxBeatNumbers);
  }
  for (const auto& [name, number] : beat.numbers) {
    if (!IsNumberName(name)) {
      return "field 'name' is not of the form [A-Za-z0-9_./-]{1,64}";
    }
  }
  return "";
}

}  // namespace

const rpc::Protocol& SupervisionProtocol() {
  static const auto protocol =
      rpc::Protocol::FromTable("supervision", 5, kMessageTable);
  return protocol;
}

std::string ToString(RoleState state) {
  return std::string(kRoleStates[static_cast<size_t>(state)]);
}

std::string RoleId::ToString() const {
  return fmt::format("{}-{}", role, index);
}

bool IsRoleName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxRoleBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return IsLowerOrDigit(c) || c == '_' || c == '-';
         });
}

bool IsNumberName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNumberNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return IsLowerOrDigit(c) || (c >= 'A' && c <= 'Z') || c == '_' ||
                  c == '.' || c == '/' || c == '-';
         });
}

rpc::Message Heartbeat::Encode() const {
  if (const std::string problem = ProblemOf(*this); !problem.empty()) {
    throw InvalidArgument("Heartbeat: " + problem);
  }
  return rpc::EncodeMessage(*this);
}

Heartbeat Heartbeat::Decode(std::span<const rpc::Frame> payload) {
  auto beat = rpc::DecodeMessage<Heartbeat>(payload);
  if (const std::string problem = ProblemOf(beat); !problem.empty()) {
    throw rpc::MalformedMessage(fmt::format("{}: {}", kName, problem));
  }
  return beat;
}

}  // namespace replicant::fleet
