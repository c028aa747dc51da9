#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/protocol/heartbeat.h"

// The messages between a supervisor and the agents of other hosts, which run
// processes for it; docs/rpc.md has the same table. They belong to the protocol
// of supervision (fleet/protocol/heartbeat.h), so that one address of a run
// serves heartbeats and agents.
//
// Thread-safety: values and pure functions.
namespace replicant::fleet {

inline constexpr uint16_t kJoinKind = 2;
inline constexpr uint16_t kReportKind = 3;
inline constexpr uint16_t kStopKind = 4;
inline constexpr uint16_t kScaleKind = 5;
inline constexpr uint32_t kMaxHostBytes = 256;
inline constexpr uint32_t kMaxAgentFiles = 10'000;
// Of all files together: with their paths they fit into one part of a message
// (SocketOptions::max_part_bytes), which JoinReply is.
inline constexpr uint32_t kMaxAgentFilesBytes = 240u << 20;
inline constexpr uint32_t kMaxAgentProcesses = 10'000;
inline constexpr uint32_t kMaxLogChunkBytes = 1u << 20;
inline constexpr uint32_t kMaxPathBytes = 1024;
inline constexpr uint32_t kMaxArguments = 100;

// Asks the fleet to end its run. The answer is empty.
struct StopRequest {
  static constexpr std::string_view kName = "supervision.stop";
  std::string who;  // for the log; one line

  template <class V>
  void Fields(V& v) {
    v.Line("who", &who, kMaxHostBytes);
  }
  bool operator==(const StopRequest&) const = default;
};

// Asks the fleet to run `count` processes of a role.
struct ScaleRequest {
  static constexpr std::string_view kName = "supervision.scale";
  std::string who;  // for the log; one line
  std::string role = "actor";
  uint32_t count = 0;

  template <class V>
  void Fields(V& v) {
    v.Line("who", &who, kMaxHostBytes);
    v.String("role", &role, kMaxRoleBytes);
    v.Check(IsRoleName(role),
            "field 'role' is not of the form [a-z0-9_-]{{1,32}}");
    v.Number("count", &count);
  }
  bool operator==(const ScaleRequest&) const = default;
};

struct ScaleReply {
  static constexpr std::string_view kName = "supervision.scale reply";
  std::string refusal;    // why nothing changes; empty: it is accepted
  uint32_t previous = 0;  // the number until now

  template <class V>
  void Fields(V& v) {
    v.Line("refusal", &refusal, kMaxReasonBytes);
    v.Number("previous", &previous);
  }
  bool operator==(const ScaleReply&) const = default;
};

// An agent offers its host.
struct JoinRequest {
  static constexpr std::string_view kName = "supervision.join";
  uint64_t agent = 0;          // random id of this run of the agent
  std::string host;            // its name, for messages; one line
  std::string role = "actor";  // role of its processes
  uint32_t processors = 1;
  uint32_t slots = 0;  // maximum number of processes; 0: the supervisor decides

  template <class V>
  void Fields(V& v) {
    v.Number("agent", &agent);
    v.Line("host", &host, kMaxHostBytes);
    v.Check(!host.empty(), "field 'host' is empty");
    v.String("role", &role, kMaxRoleBytes);
    v.Check(IsRoleName(role),
            "field 'role' is not of the form [a-z0-9_-]{{1,32}}");
    v.Number("processors", &processors);
    v.Number("slots", &slots);
  }
  // Throws InvalidArgument for a name that is empty or too long.
  rpc::Message Encode() const;
  // Throws MalformedMessage, as the functions of the same name below.
  static JoinRequest Decode(std::span<const rpc::Frame> payload);
  bool operator==(const JoinRequest&) const = default;
};

// Whether a path stays in the folder that it is relative to.
bool StaysInside(const std::string& path);

// A file that the processes need, by its path in the agent's folder.
struct AgentFile {
  std::string path;  // relative, without ".."
  std::string bytes;

  template <class V>
  void Fields(V& v) {
    v.String("path", &path, kMaxPathBytes);
    v.Check(StaysInside(path), "field 'path' leads out of the agent's folder");
    v.String("bytes", &bytes, kMaxAgentFilesBytes);
  }
  bool operator==(const AgentFile&) const = default;
};

struct JoinReply {
  static constexpr std::string_view kName = "supervision.join reply";
  std::string refusal;  // why the host is refused; empty: it is accepted
  // Seconds without an answer after which the agent ends its processes.
  double timeout_s = 60.0;
  std::vector<AgentFile> files;

  template <class V>
  void Fields(V& v) {
    v.Line("refusal", &refusal, kMaxReasonBytes);
    v.Number("timeout_s", &timeout_s);
    v.Check(std::isfinite(timeout_s) && timeout_s > 0.0,
            "field 'timeout_s': {} is not finite and > 0", timeout_s);
    v.List("num_files", &files, kMaxAgentFiles);
  }
  bool operator==(const JoinReply&) const = default;
};

// One process of an agent.
struct AgentProcess {
  RoleId id;
  uint32_t incarnation = 1;
  bool has_ended = false;
  int32_t code = 0;  // exit code; -1: a signal ended it
  int32_t signal = 0;

  template <class V>
  void Fields(V& v) {
    id.Fields(v);
    v.Number("incarnation", &incarnation);
    v.Bool("has_ended", &has_ended);
    v.Number("code", &code);
    v.Number("signal", &signal);
  }
  bool operator==(const AgentProcess&) const = default;
};

// Bytes of a process's log, from `offset` on.
struct LogChunk {
  RoleId id;
  uint32_t incarnation = 1;
  uint64_t offset = 0;
  std::string bytes;

  template <class V>
  void Fields(V& v) {
    id.Fields(v);
    v.Number("incarnation", &incarnation);
    v.Number("offset", &offset);
    v.String("bytes", &bytes, kMaxLogChunkBytes);
  }
  bool operator==(const LogChunk&) const = default;
};

// All processes of an agent. An ended process is in every report until one of
// these reports is answered, and so are bytes of logs until a supervisor that
// takes logs has answered.
struct AgentReport {
  static constexpr std::string_view kName = "supervision.report";
  uint64_t agent = 0;
  // The agent ends its processes and itself; no other report follows.
  bool is_leaving = false;
  uint64_t last_order = 0;  // number of the last order that was carried out
  std::vector<AgentProcess> processes;
  std::vector<LogChunk> logs;

  template <class V>
  void Fields(V& v) {
    v.Number("agent", &agent);
    v.Bool("is_leaving", &is_leaving);
    v.Number("last_order", &last_order);
    v.List("num_processes", &processes, kMaxAgentProcesses);
    v.List("num_logs", &logs, kMaxAgentProcesses);
  }
  bool operator==(const AgentReport&) const = default;
};

struct AgentOrder {
  enum class Kind : uint8_t { kStart = 0, kSignal = 1 };

  uint64_t number = 0;  // ascending
  Kind kind = Kind::kStart;
  RoleId id;
  uint32_t incarnation = 1;
  int32_t signal = 0;                  // of kSignal
  std::vector<std::string> arguments;  // of kStart: added to the command

  template <class V>
  void Fields(V& v) {
    v.Number("number", &number);
    v.Enum("kind", &kind, {"start", "signal"});
    id.Fields(v);
    v.Number("incarnation", &incarnation);
    v.Number("signal", &signal);
    v.List("num_arguments", &arguments, kMaxArguments,
           [&v](std::string& argument) {
             v.String("argument", &argument, kMaxPathBytes);
           });
  }
  bool operator==(const AgentOrder&) const = default;
};

struct ReportReply {
  static constexpr std::string_view kName = "supervision.report reply";
  enum class Verdict : uint8_t {
    kGoOn = 0,
    kJoinAgain = 1,  // this supervisor does not know the agent
    kLeave = 2,      // the run is over
  };

  Verdict verdict = Verdict::kGoOn;
  std::string reason;  // one line, as in Heartbeat
  // Orders after the report's `last_order`.
  std::vector<AgentOrder> orders;
  // False: the report's logs were not kept, and the next report brings none.
  bool takes_logs = true;

  template <class V>
  void Fields(V& v) {
    v.Enum("verdict", &verdict, {"go on", "join again", "leave"});
    v.Line("reason", &reason, kMaxReasonBytes);
    v.List("num_orders", &orders, kMaxAgentProcesses);
    v.Bool("takes_logs", &takes_logs);
  }
  bool operator==(const ReportReply&) const = default;
};

}  // namespace replicant::fleet
