#include "fleet/protocol/agent_messages.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/rpc/fields.h"

namespace replicant::fleet {

bool StaysInside(const std::string& path) {
  const std::filesystem::path given(path);
  if (path.empty() || given.is_absolute()) return false;
  for (const auto& part : given) {
    if (part == "..") return false;
  }
  return path.find('\0') == std::string::npos;
}

rpc::Message StopRequest::Encode() const { return rpc::EncodeMessage(*this); }
StopRequest StopRequest::Decode(std::span<const rpc::Frame> payload) {
  return rpc::DecodeMessage<StopRequest>("supervision.stop", payload);
}

rpc::Message JoinRequest::Encode() const {
  if (host.empty() || host.size() > kMaxHostBytes) {
    throw InvalidArgument(
        fmt::format("JoinRequest: a host's name of {} bytes; want 1 to {}",
                    host.size(), kMaxHostBytes));
  }
  return rpc::EncodeMessage(*this);
}
JoinRequest JoinRequest::Decode(std::span<const rpc::Frame> payload) {
  return rpc::DecodeMessage<JoinRequest>("supervision.join", payload);
}

rpc::Message JoinReply::Encode() const { return rpc::EncodeMessage(*this); }
JoinReply JoinReply::Decode(std::span<const rpc::Frame> payload) {
  return rpc::DecodeMessage<JoinReply>("supervision.join reply", payload);
}

rpc::Message AgentReport::Encode() const { return rpc::EncodeMessage(*this); }
AgentReport AgentReport::Decode(std::span<const rpc::Frame> payload) {
  return rpc::DecodeMessage<AgentReport>("supervision.report", payload);
}

rpc::Message ReportReply::Encode() const { return rpc::EncodeMessage(*this); }
ReportReply ReportReply::Decode(std::span<const rpc::Frame> payload) {
  return rpc::DecodeMessage<ReportReply>("supervision.report reply", payload);
}

}  // namespace replicant::fleet
