#include "fleet/processor_claims.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace replicant::fleet {
namespace {

// Returns a socket with this name in the abstract namespace, or -1 if the name
// is taken.
int ClaimName(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // the first byte stays zero: the name is abstract
  REPLICANT_CHECK(name.size() < sizeof(address.sun_path), "{}", name);
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw IoError::FromErrno("make a socket for", name, errno);
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) {
    return fd;
  }
  const int error = errno;
  ::close(fd);
  if (error == EADDRINUSE) return -1;
  throw IoError::FromErrno("bind", "@" + name, error);
}

}  // namespace

CpuSet ProcessorClaims::Claim(const CpuSet& cpus) {
  for (const int cpu : cpus.cpus()) {
    if (sockets_.contains(cpu)) continue;
    const int fd = ClaimName(fmt::format("{}-{}", name_, cpu));
    if (fd >= 0) sockets_[cpu] = fd;
  }
  std::vector<int> claimed;
  for (const auto& [cpu, fd] : sockets_) claimed.push_back(cpu);
  return CpuSet(std::move(claimed));
}

void ProcessorClaims::KeepOnly(const CpuSet& cpus) {
  std::erase_if(sockets_, [&](const auto& claim) {
    if (std::ranges::binary_search(cpus.cpus(), claim.first)) return false;
    ::close(claim.second);
    return true;
  });
}

}  // namespace replicant::fleet
