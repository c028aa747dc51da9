#include "fleet/protocol/heartbeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rpc/wire.h"

namespace replicant::fleet {
namespace {

constexpr std::string_view kMessageTable = R"(supervision 3
1 beat
  request: string role, u32 index, u32 incarnation, u32 pid,
    u8 state (0 starting, 1 running, 2 draining, 3 waiting),
    string reason, f64 waiting_s, u32 num_numbers, num_numbers x
    (string name, u8 kind (0 counter, 1 gauge), f64 value)
  reply: u8 order (0 go on, 1 stop), string reason
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
    string argument)
4 stop
  request: string who
  reply: no part
)";

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

bool IsLowerOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

std::string ReadReason(rpc::WireReader& reader, std::string_view message) {
  std::string reason = reader.ReadString("reason", kMaxReasonBytes);
  if (std::any_of(reason.begin(), reason.end(), IsControl)) {
    throw rpc::MalformedMessage(
        fmt::format("{}: field 'reason' has control characters", message));
  }
  return reason;
}

// A byte that stands for one of the values 0 ... `largest`.
template <typename E>
E ReadEnum(rpc::WireReader& reader, std::string_view message,
           std::string_view field, E largest) {
  const auto value = reader.Read<uint8_t>(field);
  if (value > static_cast<uint8_t>(largest)) {
    throw rpc::MalformedMessage(
        fmt::format("{}: field '{}': {} is not in [0, {}]", message, field,
                    value, static_cast<int>(largest)));
  }
  return static_cast<E>(value);
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

std::string_view SupervisionMessageTable() { return kMessageTable; }

const rpc::Protocol& SupervisionProtocol() {
  static const auto protocol =
      rpc::Protocol::FromTable("supervision", 3, kMessageTable);
  return protocol;
}

std::string ToString(RoleState state) {
  switch (state) {
    case RoleState::kStarting:
      return "starting";
    case RoleState::kRunning:
      return "running";
    case RoleState::kDraining:
      return "draining";
    case RoleState::kWaiting:
      return "waiting";
  }
  return "unknown";
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
  rpc::WireWriter writer;
  writer.WriteString(id.role);
  writer.Write(id.index);
  writer.Write(incarnation);
  writer.Write(pid);
  writer.Write(static_cast<uint8_t>(state));
  writer.WriteString(rpc::OneLine(reason, kMaxReasonBytes));
  writer.Write(waiting_s);
  writer.Write(static_cast<uint32_t>(numbers.size()));
  for (const auto& [name, number] : numbers) {
    writer.WriteString(name);
    writer.Write(static_cast<uint8_t>(number.kind));
    writer.Write(number.value);
  }
  return rpc::MakeMessage(writer.Finish());
}

Heartbeat Heartbeat::Decode(std::span<const rpc::Frame> payload) {
  constexpr std::string_view kName = "supervision.beat";
  rpc::WireReader reader(kName, payload);
  Heartbeat beat;
  beat.id.role = reader.ReadString("role", kMaxRoleBytes);
  beat.id.index = reader.Read<uint32_t>("index");
  beat.incarnation = reader.Read<uint32_t>("incarnation");
  beat.pid = reader.Read<uint32_t>("pid");
  beat.state = ReadEnum(reader, kName, "state", RoleState::kWaiting);
  beat.reason = ReadReason(reader, kName);
  beat.waiting_s = reader.Read<double>("waiting_s");
  const auto num_numbers = reader.Read<uint32_t>("num_numbers");
  if (num_numbers > kMaxBeatNumbers) {
    throw rpc::MalformedMessage(
        fmt::format("{}: field 'num_numbers': {} is over the limit of {}",
                    kName, num_numbers, kMaxBeatNumbers));
  }
  for (uint32_t i = 0; i < num_numbers; ++i) {
    std::string name = reader.ReadString("name", kMaxNumberNameBytes);
    BeatNumber number;
    number.kind = ReadEnum(reader, kName, "kind", BeatNumber::Kind::kGauge);
    number.value = reader.Read<double>("value");
    // ascending, as they are written: so none comes twice
    if (!beat.numbers.empty() && name <= beat.numbers.rbegin()->first) {
      throw rpc::MalformedMessage(
          fmt::format("{}: field 'name' is not in ascending order", kName));
    }
    beat.numbers.emplace_hint(beat.numbers.end(), std::move(name), number);
  }
  reader.Finish();
  if (const std::string problem = ProblemOf(beat); !problem.empty()) {
    throw rpc::MalformedMessage(fmt::format("{}: {}", kName, problem));
  }
  return beat;
}

rpc::Message BeatReply::Encode() const {
  rpc::WireWriter writer;
  writer.Write(static_cast<uint8_t>(order));
  writer.WriteString(rpc::OneLine(reason, kMaxReasonBytes));
  return rpc::MakeMessage(writer.Finish());
}

BeatReply BeatReply::Decode(std::span<const rpc::Frame> payload) {
  constexpr std::string_view kName = "supervision.beat reply";
  rpc::WireReader reader(kName, payload);
  BeatReply reply;
  reply.order = ReadEnum(reader, kName, "order", Order::kStop);
  reply.reason = ReadReason(reader, kName);
  reader.Finish();
  return reply;
}

}  // namespace replicant::fleet
