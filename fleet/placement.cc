#include "fleet/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"

namespace replicant::fleet {
namespace {

void Check(const RoleRequest& request) {
  if (request.threads < 0 || (request.threads == 0 && !request.is_exclusive)) {
    throw InvalidArgument(fmt::format(
        "placement of {}: threads must be >= {}, got {}", request.id.ToString(),
        request.is_exclusive ? 0 : 1, request.threads));
  }
}

CpuSet CpusOf(const CpuTopology& topology) {
  std::vector<int> cpus;
  for (const Processor& processor : topology.processors) {
    cpus.push_back(processor.cpu);
  }
  return CpuSet(std::move(cpus));
}

// The number of requested threads that can run without delaying each other.
int NumWanted(const std::vector<RoleRequest>& requests) {
  int exclusive = 0;
  double shared = 0.0;
  for (const RoleRequest& request : requests) {
    if (request.is_exclusive) {
      exclusive += std::max(1, request.threads);
    } else {
      shared += request.load * request.threads;
    }
  }
  return exclusive + static_cast<int>(std::ceil(shared));
}

// The processors that are left and their load.
class Machine {
 public:
  explicit Machine(const CpuTopology& topology) {
    const auto count = std::min(topology.processors.size(),
                                static_cast<size_t>(topology.NumUsable()));
    for (size_t i = 0; i < count; ++i) {
      cpus_.push_back(topology.processors[i].cpu);
    }
    load_.resize(count);
  }

  int num_left() const { return static_cast<int>(cpus_.size()); }

  // Takes the `count` best processors away for one role.
  CpuSet TakeForOne(int count) {
    const std::vector<int> taken(cpus_.begin(), cpus_.begin() + count);
    cpus_.erase(cpus_.begin(), cpus_.begin() + count);
    load_.erase(load_.begin(), load_.begin() + count);
    return CpuSet(taken);
  }

  // The processors with the least load; other roles may share them.
  CpuSet Share(int threads, double load) {
    std::vector<size_t> order(cpus_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return load_[a] < load_[b];
    });
    const int count = std::clamp(threads, 1, num_left());
    std::vector<int> taken;
    for (int i = 0; i < count; ++i) {
      const size_t cpu = order[static_cast<size_t>(i)];
      taken.push_back(cpus_[cpu]);
      load_[cpu] += load * std::max(threads, 1) / count;
    }
    return CpuSet(taken);
  }

 private:
  std::vector<int> cpus_;  // best first
  std::vector<double> load_;
};

}  // namespace

std::vector<PlacedRole> Place(const CpuTopology& topology,
                              const std::vector<RoleRequest>& requests) {
  int num_exclusive = 0;
  double shared_load = 0.0;
  bool has_shared = false;
  for (const RoleRequest& request : requests) {
    Check(request);
    if (request.is_exclusive) {
      ++num_exclusive;
    } else {
      has_shared = true;
      shared_load += request.load * request.threads;
    }
  }
  Machine machine(topology);
  const int reserved = has_shared ? 1 : 0;
  const bool can_exclude = machine.num_left() >= num_exclusive + reserved;

  std::vector<PlacedRole> placed;
  placed.reserve(requests.size());
  for (const RoleRequest& request : requests) placed.push_back({request, {}});
  int num_behind = num_exclusive;
  for (PlacedRole& role : placed) {
    if (!role.request.is_exclusive || !can_exclude) continue;
    --num_behind;
    const int most = machine.num_left() - num_behind - reserved;
    // an equal part of the processors that the shared roles leave
    const int left =
        machine.num_left() -
        std::max(reserved, static_cast<int>(std::ceil(shared_load)));
    const int wanted = role.request.threads > 0 ? role.request.threads
                                                : left / (num_behind + 1);
    role.cpus = machine.TakeForOne(std::clamp(wanted, 1, most));
  }
  for (PlacedRole& role : placed) {
    if (!role.cpus.empty()) continue;
    role.cpus = machine.Share(role.request.threads, role.request.load);
  }
  return placed;
}

std::vector<PlacedRole> PlaceBesideOthers(
    const CpuTopology& topology, const std::vector<RoleRequest>& requests,
    ProcessorClaims* claims) {
  const CpuSet claimed = claims->Claim(CpusOf(topology));
  CpuTopology free = topology;
  std::erase_if(free.processors, [&](const Processor& processor) {
    return !std::ranges::binary_search(claimed.cpus(), processor.cpu);
  });
  std::vector<PlacedRole> placed;
  if (free.processors.empty() ||
      free.NumUsable() < std::min(topology.NumUsable(), NumWanted(requests))) {
    for (const RoleRequest& request : requests) placed.push_back({request, {}});
  } else {
    placed = Place(free, requests);
  }
  std::vector<int> used;
  for (const PlacedRole& role : placed) {
    used.insert(used.end(), role.cpus.cpus().begin(), role.cpus.cpus().end());
  }
  claims->KeepOnly(CpuSet(std::move(used)));
  return placed;
}

std::string PlacementTable(const CpuTopology& topology,
                           const std::vector<PlacedRole>& placed) {
  std::set<int> cores;
  for (const Processor& processor : topology.processors) {
    cores.insert(processor.core);
  }
  std::string text = fmt::format("processors {} ({} cores",
                                 CpusOf(topology).ToString(), cores.size());
  if (std::isfinite(topology.quota)) {
    text += fmt::format(", quota of {:.3g}", topology.quota);
  }
  text += fmt::format(")\n{:<14} {:>7}  {}\n", "role", "threads", "processors");
  for (const PlacedRole& role : placed) {
    if (role.cpus.empty()) {
      text += fmt::format("{:<14} {:>7}  any: other fleets use this machine\n",
                          role.request.id.ToString(), role.request.threads);
      continue;
    }
    std::string threads = std::to_string(role.cpus.size());
    if (role.request.threads > role.cpus.size()) {
      threads += fmt::format(" of {}", role.request.threads);
    }
    text += fmt::format("{:<14} {:>7}  {}\n", role.request.id.ToString(),
                        threads, role.cpus.ToString());
  }
  return text;
}

}  // namespace replicant::fleet
