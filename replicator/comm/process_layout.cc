#include "replicator/comm/process_layout.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace replicant::comm {
namespace {

// Neighbouring processes of one host: [begin, end).
struct Run {
  int size() const { return end - begin; }

  int begin = 0;
  int end = 0;
};

std::vector<Run> RunsOf(std::span<const int> host_of) {
  std::vector<Run> runs;
  for (int p = 0; p < static_cast<int>(host_of.size()); ++p) {
    const auto i = static_cast<size_t>(p);
    if (p == 0 || host_of[i] != host_of[i - 1]) runs.push_back({p, p});
    ++runs.back().end;
  }
  return runs;
}

}  // namespace

ProcessLayout::ProcessLayout(std::span<const int> hosts_by_process) {
  std::map<int, int> index_of;
  for (int p = 0; p < static_cast<int>(hosts_by_process.size()); ++p) {
    const auto [entry, is_new] =
        index_of.try_emplace(hosts_by_process[static_cast<size_t>(p)],
                             static_cast<int>(hosts.size()));
    if (is_new) hosts.emplace_back();
    hosts[static_cast<size_t>(entry->second)].push_back(p);
    host_of.push_back(entry->second);
  }
  for (const auto& members : hosts) {
    chain.insert(chain.end(), members.begin(), members.end());
  }
  const auto num_processes = static_cast<int>(host_of.size());
  std::vector<Run> runs = RunsOf(host_of);
  const bool has_neighbours =
      std::ranges::any_of(runs, [](const Run& run) { return run.size() > 1; });
  if (num_processes <= kMaxGroup && (runs.size() == 1 || !has_neighbours)) {
    runs = {{0, num_processes}};
  }
  for (const Run& run : runs) {
    const int count = (run.size() + kMaxGroup - 1) / kMaxGroup;
    for (int i = 0; i < count; ++i) {
      const int begin = run.begin + run.size() * i / count;
      const int end = run.begin + run.size() * (i + 1) / count;
      groups.emplace_back(static_cast<size_t>(end - begin));
      std::iota(groups.back().begin(), groups.back().end(), begin);
    }
  }
}

}  // namespace replicant::comm
