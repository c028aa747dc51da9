#include "base/metrics/exposer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <prometheus/exposer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <exception>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "base/metrics/registry_impl.h"
#include "base/process.h"
#include "base/thread.h"

namespace replicant::metrics {
namespace {

// Reads "a.b.c.d", the only form of host that the server takes.
std::optional<in_addr> ParseHost(const std::string& host) {
  in_addr address{};
  const bool is_ok = ::inet_pton(AF_INET, host.c_str(), &address) == 1;
  return is_ok ? std::optional(address) : std::nullopt;
}

std::optional<int> ParsePort(std::string_view text) {
  int port = -1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  const bool is_port =
      error == std::errc() && stop == end && port >= 0 && port <= 65535;
  return is_port ? std::optional(port) : std::nullopt;
}

// Checks the address and returns its host.
std::string CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  const bool is_ok = colon != std::string::npos &&
                     address.find('\0') == std::string::npos &&
                     ParseHost(address.substr(0, colon)) &&
                     ParsePort(std::string_view(address).substr(colon + 1));
  if (!is_ok) {
    throw InvalidArgument(
        fmt::format("metrics address '{}': expected an IPv4 address and a "
                    "port, such as 127.0.0.1:9464 (port 0: any)",
                    address));
  }
  return address.substr(0, colon);
}

// Begins a connection to this address and drops it. `host` was checked.
void Knock(const std::string& host, int port) {
  const int fd =
      ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr = *ParseHost(host);
  // an answer is not needed
  [[maybe_unused]] const int result = ::connect(
      fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  ::close(fd);
}

}  // namespace

class Exposer::Server : public prometheus::Exposer {
 public:
  using prometheus::Exposer::Exposer;
};

Exposer::Exposer(const ExposerOptions& options, const Registry& registry)
    : host_(CheckAddress(options.address)) {
  try {
    server_ = std::make_unique<Server>(options.address);
  } catch (const std::exception& e) {
    throw CommError(fmt::format(
        "{}: metrics address '{}': cannot listen ({}); hint: another process "
        "may use the port, or the address does not belong to this machine",
        HostAndPid(), options.address, e.what()));
  }
  server_->RegisterCollectable(registry.impl_);
  const std::vector<int> ports = server_->GetListeningPorts();
  REPLICANT_CHECK_EQ(ports.size(), 1U);
  port_ = ports[0];
}

Exposer::~Exposer() {
  // the server checks whether to stop when a connection comes, otherwise only
  // every two seconds
  const Thread knocker("knocker", [&](const Thread::StopToken& token) {
    constexpr int kPauseMs = 5;
    while (!token.IsStopRequested()) {
      Knock(host_, port_);
      ::poll(nullptr, 0, kPauseMs);
    }
  });
  server_.reset();
}

std::string Exposer::Url() const {
  return fmt::format("http://{}:{}/metrics", host_, port_);
}

}  // namespace replicant::metrics
