#include "replicator/comm/host_addresses.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/error.h"

namespace replicant::comm {

std::vector<std::string> HostAddresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    throw IoError::FromErrno("getifaddrs", "interfaces", errno);
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first,
                                                                &::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET ||
        (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) {
      continue;
    }
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
    addresses.emplace_back(text.data());
  }
  return addresses;
}

bool IsReachable(const std::string& address, int port,
                 std::chrono::milliseconds timeout) {
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(port));
  if (::inet_pton(AF_INET, address.c_str(), &target.sin_addr) != 1) {
    return false;
  }
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                          /*protocol=*/0);
  if (fd < 0) throw IoError::FromErrno("socket", address, errno);
  int error = 0;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&target),
                sizeof(target)) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      pollfd item{fd, POLLOUT, 0};
      socklen_t size = sizeof(error);
      const bool is_done =
          ::poll(&item, 1, static_cast<int>(timeout.count())) == 1;
      if (!is_done ||
          ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = ETIMEDOUT;
      }
    }
  }
  ::close(fd);
  return error == 0;
}

std::string NetworkName() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  // hosts may share a name, and network namespaces of one host do
  std::error_code error;
  const auto space =
      std::filesystem::read_symlink("/proc/self/ns/net", error).string();
  return fmt::format("{} {}", host.data(), space);
}

}  // namespace replicant::comm
