#include "fleet/protocol/agent_messages.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "base/rpc/wire.h"

namespace replicant::fleet {
namespace {

constexpr uint32_t kMaxPathBytes = 1024;
constexpr uint32_t kMaxArguments = 100;

uint32_t ReadCount(rpc::WireReader& reader, std::string_view message,
                   std::string_view field, uint32_t most) {
  const auto count = reader.Read<uint32_t>(field);
  if (count > most) {
    throw rpc::MalformedMessage(fmt::format("{}: field '{}': {} is over {}",
                                            message, field, count, most));
  }
  return count;
}

uint8_t ReadByte(rpc::WireReader& reader, std::string_view message,
                 std::string_view field, uint8_t most) {
  const auto value = reader.Read<uint8_t>(field);
  if (value > most) {
    throw rpc::MalformedMessage(fmt::format(
        "{}: field '{}': {} is not in [0, {}]", message, field, value, most));
  }
  return value;
}

void WriteId(const RoleId& id, uint32_t incarnation, rpc::WireWriter* writer) {
  writer->WriteString(id.role);
  writer->Write(id.index);
  writer->Write(incarnation);
}

void CheckRole(std::string_view message, const std::string& role) {
  if (IsRoleName(role)) return;
  throw rpc::MalformedMessage(fmt::format(
      "{}: field 'role' is not of the form [a-z0-9_-]{{1,32}}", message));
}

// A role and its incarnation.
RoleId ReadId(rpc::WireReader& reader, std::string_view message,
              uint32_t* incarnation) {
  RoleId id;
  id.role = reader.ReadString("role", kMaxRoleBytes);
  id.index = reader.Read<uint32_t>("index");
  *incarnation = reader.Read<uint32_t>("incarnation");
  CheckRole(message, id.role);
  return id;
}

// Whether the path stays in the folder that it is relative to.
bool StaysInside(const std::string& path) {
  const std::filesystem::path given(path);
  if (path.empty() || given.is_absolute()) return false;
  for (const auto& part : given) {
    if (part == "..") return false;
  }
  return path.find('\0') == std::string::npos;
}

}  // namespace

rpc::Message StopRequest::Encode() const {
  rpc::WireWriter writer;
  writer.WriteString(rpc::OneLine(who, kMaxHostBytes));
  return rpc::MakeMessage(writer.Finish());
}

StopRequest StopRequest::Decode(std::span<const rpc::Frame> payload) {
  rpc::WireReader reader("supervision.stop", payload);
  StopRequest stop;
  stop.who =
      rpc::OneLine(reader.ReadString("who", kMaxHostBytes), kMaxHostBytes);
  reader.Finish();
  return stop;
}

rpc::Message JoinRequest::Encode() const {
  if (host.empty() || host.size() > kMaxHostBytes) {
    throw InvalidArgument(
        fmt::format("JoinRequest: a host's name of {} bytes; want 1 to {}",
                    host.size(), kMaxHostBytes));
  }
  rpc::WireWriter writer;
  writer.Write(agent);
  writer.WriteString(host);
  writer.WriteString(role);
  writer.Write(processors);
  writer.Write(slots);
  return rpc::MakeMessage(writer.Finish());
}

JoinRequest JoinRequest::Decode(std::span<const rpc::Frame> payload) {
  constexpr std::string_view kName = "supervision.join";
  rpc::WireReader reader(kName, payload);
  JoinRequest join;
  join.agent = reader.Read<uint64_t>("agent");
  join.host =
      rpc::OneLine(reader.ReadString("host", kMaxHostBytes), kMaxHostBytes);
  join.role = reader.ReadString("role", kMaxRoleBytes);
  join.processors = reader.Read<uint32_t>("processors");
  join.slots = reader.Read<uint32_t>("slots");
  reader.Finish();
  if (join.host.empty()) {
    throw rpc::MalformedMessage(
        fmt::format("{}: field 'host' is empty", kName));
  }
  CheckRole(kName, join.role);
  return join;
}

rpc::Message JoinReply::Encode() const {
  rpc::WireWriter writer;
  writer.WriteString(rpc::OneLine(refusal, kMaxReasonBytes));
  writer.Write(timeout_s);
  writer.Write(static_cast<uint32_t>(files.size()));
  for (const AgentFile& file : files) {
    writer.WriteString(file.path);
    writer.WriteString(file.bytes);
  }
  return rpc::MakeMessage(writer.Finish());
}

JoinReply JoinReply::Decode(std::span<const rpc::Frame> payload) {
  constexpr std::string_view kName = "supervision.join reply";
  rpc::WireReader reader(kName, payload);
  JoinReply reply;
  reply.refusal = reader.ReadString("refusal", kMaxReasonBytes);
  reply.timeout_s = reader.Read<double>("timeout_s");
  if (!std::isfinite(reply.timeout_s) || reply.timeout_s <= 0.0) {
    throw rpc::MalformedMessage(
        fmt::format("{}: field 'timeout_s': {} is not finite and > 0", kName,
                    reply.timeout_s));
  }
  const uint32_t count = ReadCount(reader, kName, "num_files", kMaxAgentFiles);
  for (uint32_t i = 0; i < count; ++i) {
    AgentFile file;
    file.path = reader.ReadString("path", kMaxPathBytes);
    file.bytes = reader.ReadString("bytes", kMaxAgentFileBytes);
    if (!StaysInside(file.path)) {
      throw rpc::MalformedMessage(fmt::format(
          "{}: field 'path' leads out of the agent's folder", kName));
    }
    reply.files.push_back(std::move(file));
  }
  reader.Finish();
  return reply;
}

rpc::Message AgentReport::Encode() const {
  rpc::WireWriter writer;
  writer.Write(agent);
  writer.WriteBool(is_leaving);
  writer.Write(last_order);
  writer.Write(static_cast<uint32_t>(processes.size()));
  for (const AgentProcess& process : processes) {
    WriteId(process.id, process.incarnation, &writer);
    writer.WriteBool(process.has_ended);
    writer.Write(process.code);
    writer.Write(process.signal);
  }
  writer.Write(static_cast<uint32_t>(logs.size()));
  for (const LogChunk& chunk : logs) {
    WriteId(chunk.id, chunk.incarnation, &writer);
    writer.Write(chunk.offset);
    writer.WriteString(chunk.bytes);
  }
  return rpc::MakeMessage(writer.Finish());
}

AgentReport AgentReport::Decode(std::span<const rpc::Frame> payload) {
  constexpr std::string_view kName = "supervision.report";
  rpc::WireReader reader(kName, payload);
  AgentReport report;
  report.agent = reader.Read<uint64_t>("agent");
  report.is_leaving = reader.ReadBool("is_leaving");
  report.last_order = reader.Read<uint64_t>("last_order");
  const uint32_t num_processes =
      ReadCount(reader, kName, "num_processes", kMaxAgentProcesses);
  for (uint32_t i = 0; i < num_processes; ++i) {
    AgentProcess process;
    process.id = ReadId(reader, kName, &process.incarnation);
    process.has_ended = reader.ReadBool("has_ended");
    process.code = reader.Read<int32_t>("code");
    process.signal = reader.Read<int32_t>("signal");
    report.processes.push_back(std::move(process));
  }
  const uint32_t num_logs =
      ReadCount(reader, kName, "num_logs", kMaxAgentProcesses);
  for (uint32_t i = 0; i < num_logs; ++i) {
    LogChunk chunk;
    chunk.id = ReadId(reader, kName, &chunk.incarnation);
    chunk.offset = reader.Read<uint64_t>("offset");
    chunk.bytes = reader.ReadString("bytes", kMaxLogChunkBytes);
    report.logs.push_back(std::move(chunk));
  }
  reader.Finish();
  return report;
}

rpc::Message ReportReply::Encode() const {
  rpc::WireWriter writer;
  writer.Write(static_cast<uint8_t>(verdict));
  writer.WriteString(rpc::OneLine(reason, kMaxReasonBytes));
  writer.Write(static_cast<uint32_t>(orders.size()));
  for (const AgentOrder& order : orders) {
    writer.Write(order.number);
    writer.Write(static_cast<uint8_t>(order.kind));
    WriteId(order.id, order.incarnation, &writer);
    writer.Write(order.signal);
    writer.Write(static_cast<uint32_t>(order.arguments.size()));
    for (const std::string& word : order.arguments) writer.WriteString(word);
  }
  return rpc::MakeMessage(writer.Finish());
}

ReportReply ReportReply::Decode(std::span<const rpc::Frame> payload) {
  constexpr std::string_view kName = "supervision.report reply";
  rpc::WireReader reader(kName, payload);
  ReportReply reply;
  reply.verdict = static_cast<Verdict>(ReadByte(
      reader, kName, "verdict", static_cast<uint8_t>(Verdict::kLeave)));
  reply.reason = reader.ReadString("reason", kMaxReasonBytes);
  const uint32_t count =
      ReadCount(reader, kName, "num_orders", kMaxAgentProcesses);
  for (uint32_t i = 0; i < count; ++i) {
    AgentOrder order;
    order.number = reader.Read<uint64_t>("number");
    order.kind = static_cast<AgentOrder::Kind>(
        ReadByte(reader, kName, "kind",
                 static_cast<uint8_t>(AgentOrder::Kind::kSignal)));
    order.id = ReadId(reader, kName, &order.incarnation);
    order.signal = reader.Read<int32_t>("signal");
    const uint32_t num_arguments =
        ReadCount(reader, kName, "num_arguments", kMaxArguments);
    for (uint32_t k = 0; k < num_arguments; ++k) {
      order.arguments.push_back(reader.ReadString("argument", kMaxPathBytes));
    }
    reply.orders.push_back(std::move(order));
  }
  reader.Finish();
  return reply;
}

}  // namespace replicant::fleet
