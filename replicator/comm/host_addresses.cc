#include "replicator/comm/host_addresses.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <memory>
#include <string>
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
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family ||
          (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0) {
        continue;
      }
      const auto* const v4 = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
      const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;
      const void* const address =
          family == AF_INET ? static_cast<const void*>(&v4->sin_addr)
                            : static_cast<const void*>(&v6->sin6_addr);
      std::array<char, INET6_ADDRSTRLEN> text{};
      ::inet_ntop(family, address, text.data(), text.size());
      addresses.emplace_back(text.data());
    }
  }
  return addresses;
}

bool IsReachable(const std::string& address, int port,
                 std::chrono::milliseconds timeout) {
  const bool has_brackets = address.starts_with('[') && address.ends_with(']');
  const std::string host =
      has_brackets ? address.substr(1, address.size() - 2) : address;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints,
                    &list) != 0) {
    return false;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(
      list, &::freeaddrinfo);
  const int fd =
      ::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
               /*protocol=*/0);
  if (fd < 0) throw IoError::FromErrno("socket", address, errno);
  int error = 0;
  if (::connect(fd, list->ai_addr, list->ai_addrlen) != 0) {
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
