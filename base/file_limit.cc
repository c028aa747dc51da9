#include "base/file_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/error.h"

namespace replicant {

void RaiseFileLimit() {
  // programs that close every possible descriptor one by one take long with
  // more
  constexpr rlim_t kMost = 65536;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (wanted <= limit.rlim_cur) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void CheckFileLimit(const std::string& what, int64_t num_files) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
      limit.rlim_cur >= static_cast<rlim_t>(num_files)) {
    return;
  }
  throw ConfigError(fmt::format(
      "{}: about {} open files and connections are needed, and the system "
      "allows {}; hint: ulimit -Hn {}, or LimitNOFILE of a systemd unit",
      what, num_files, limit.rlim_cur, num_files));
}

}  // namespace replicant
