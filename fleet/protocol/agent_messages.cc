#include "fleet/protocol/agent_messages.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"

namespace replicant::fleet {

bool StaysInside(const std::string& path) {
  const std::filesystem::path given(path);
  if (path.empty() || given.is_absolute()) return false;
  for (const auto& part : given) {
    if (part == "..") return false;
  }
  return path.find('\0') == std::string::npos;
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
  return rpc::DecodeMessage<JoinRequest>(payload);
}

}  // namespace replicant::fleet
