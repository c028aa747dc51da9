#include "fleet/cpu_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant::fleet {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// The words of a small file; empty if it cannot be read.
std::vector<std::string> WordsOf(const std::filesystem::path& path) {
  std::vector<std::string> words;
  try {
    std::istringstream text(ReadFile(path, /*max_size_bytes=*/1 << 16));
    for (std::string word; text >> word;) words.push_back(word);
  } catch (const IoError&) {
    // a kernel without the file: the caller has a default
  }
  return words;
}

std::optional<double> ToNumber(const std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0') return std::nullopt;
  return value;
}

// quota / period, or kNoQuota if either is not a positive number.
double Ratio(const std::string& quota, const std::string& period) {
  const auto a = ToNumber(quota), b = ToNumber(period);
  return a && b && *a > 0.0 && *b > 0.0 ? *a / *b : kNoQuota;
}

// The smallest quota of the group at `base`/`group` and its parents.
double QuotaOf(const std::filesystem::path& base,
               const std::filesystem::path& group) {
  double quota = kNoQuota;
  for (std::filesystem::path path = group.relative_path();;
       path = path.parent_path()) {
    const auto folder = base / path;
    if (const auto words = WordsOf(folder / "cpu.max"); words.size() == 2) {
      quota = std::min(quota, Ratio(words[0], words[1]));
    }
    const auto v1_quota = WordsOf(folder / "cpu.cfs_quota_us");
    const auto v1_period = WordsOf(folder / "cpu.cfs_period_us");
    if (v1_quota.size() == 1 && v1_period.size() == 1) {
      quota = std::min(quota, Ratio(v1_quota[0], v1_period[0]));
    }
    if (path.empty()) return quota;
  }
}

double ReadQuota(const std::filesystem::path& root) {
  const auto mounts = root / "sys/fs/cgroup";
  double quota = kNoQuota;
  // a line is "number:controllers:path"; v2 has no controllers
  for (const std::string& line : WordsOf(root / "proc/self/cgroup")) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      quota = std::min(
          {quota, QuotaOf(mounts, path), QuotaOf(mounts / "unified", path)});
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      quota = std::min({quota, QuotaOf(mounts / "cpu", path),
                        QuotaOf(mounts / controllers, path)});
    }
  }
  return quota;
}

Processor ReadProcessor(int cpu, const std::filesystem::path& root) {
  Processor processor = {.cpu = cpu, .core = cpu};
  const auto folder =
      root / fmt::format("sys/devices/system/cpu/cpu{}/topology", cpu);
  if (const auto words = WordsOf(folder / "thread_siblings_list");
      words.size() == 1) {
    try {
      const CpuSet siblings = CpuSet::Parse(words[0]);
      processor.core = siblings.cpus().front();
    } catch (const InvalidArgument&) {
      // more processors than a CpuSet holds: a separate core
    }
  }
  if (const auto words = WordsOf(folder / "physical_package_id");
      words.size() == 1) {
    processor.package = static_cast<int>(ToNumber(words[0]).value_or(0.0));
  }
  return processor;
}

}  // namespace

int CpuTopology::NumUsable() const {
  const double count = static_cast<double>(processors.size());
  return std::max(1, static_cast<int>(std::floor(std::min(count, quota))));
}

CpuTopology ReadCpuTopology(const CpuSet& allowed,
                            const std::filesystem::path& root) {
  REPLICANT_CHECK(!allowed.empty(), "no processor");
  CpuTopology topology;
  // for each processor, the number of earlier threads of its core
  std::map<int, int> num_threads;
  std::map<int, int> rank;
  for (const int cpu : allowed.cpus()) {
    topology.processors.push_back(ReadProcessor(cpu, root));
    rank[cpu] = num_threads[topology.processors.back().core]++;
  }
  std::sort(topology.processors.begin(), topology.processors.end(),
            [&rank](const Processor& a, const Processor& b) {
              return std::make_tuple(rank[a.cpu], a.package, a.cpu) <
                     std::make_tuple(rank[b.cpu], b.package, b.cpu);
            });
  topology.quota = ReadQuota(root);
  return topology;
}

}  // namespace replicant::fleet
