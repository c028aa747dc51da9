#pragma once

#include <fmt/format.h>
#include <sys/types.h>
#include <time.h>

#include <fstream>
#include <string>

namespace replicant {

// Of all threads of this process so far, which other work on the machine leaves
// alone.
inline double ProcessorSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Resident memory of a process in MiB; 0 if it has ended.
inline double ResidentMb(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) / 1024.0;
  }
  return 0.0;
}

}  // namespace replicant
