#include "fleet/port_claim.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace replicant::fleet {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kAnyPort = ":*";

// The address between "tcp://" and ":*", without the brackets of IPv6.
std::string HostOf(const std::string& endpoint) {
  std::string host = endpoint.substr(
      kTcp.size(), endpoint.size() - kTcp.size() - kAnyPort.size());
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

// A bound socket; `port` is set to the one that the system has chosen.
int BindAnyPort(const std::string& endpoint, int* port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(HostOf(endpoint).c_str(), "0", &hints, &found) != 0) {
    throw ConfigError(
        fmt::format("{}: give the numeric address of a network interface, such "
                    "as 10.0.0.2: other processes connect to it",
                    endpoint));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> address(
      found, &::freeaddrinfo);
  const int fd =
      ::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, /*protocol=*/0);
  const int on = 1;
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (fd < 0 ||
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(fd, address->ai_addr, address->ai_addrlen) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    throw ConfigError(fmt::format("{}: {}", endpoint, std::strerror(error)));
  }
  *port = ntohs(bound.ss_family == AF_INET6
                    ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                    : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return fd;
}

}  // namespace

bool IsOfAnyPort(const std::string& endpoint) {
  return endpoint.starts_with(kTcp) && endpoint.ends_with(kAnyPort) &&
         endpoint.size() > kTcp.size() + kAnyPort.size();
}

PortClaim::PortClaim(const std::string& endpoint) {
  REPLICANT_CHECK(IsOfAnyPort(endpoint), "{}", endpoint);
  int port = 0;
  fd_ = BindAnyPort(endpoint, &port);
  endpoint_ =
      fmt::format("{}:{}", endpoint.substr(0, endpoint.size() - 2), port);
}

PortClaim::~PortClaim() {
  if (fd_ >= 0) ::close(fd_);
}

PortClaim::PortClaim(PortClaim&& other) noexcept
    : endpoint_(std::move(other.endpoint_)),
      fd_(std::exchange(other.fd_, -1)) {}

}  // namespace replicant::fleet
