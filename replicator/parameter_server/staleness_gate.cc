#include "replicator/parameter_server/staleness_gate.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace replicant::replicator {

bool StalenessGate::CanPull() const {
  return static_cast<int64_t>(pulled_.size()) <= limit_;
}

void StalenessGate::Pull(uint32_t worker) {
  REPLICANT_CHECK(CanPull() && !Has(worker), "worker {} may not pull", worker);
  pulled_[worker] = version_;
}

bool StalenessGate::CanPush(uint32_t worker) const {
  REPLICANT_CHECK(Has(worker), "worker {} has not pulled", worker);
  std::vector<int64_t> others;
  for (const auto& [other, version] : pulled_) {
    if (other != worker) others.push_back(version);
  }
  std::ranges::sort(others);
  for (size_t j = 0; j < others.size(); ++j) {
    if (version_ + 1 + static_cast<int64_t>(j) - others[j] > limit_) {
      return false;
    }
  }
  return true;
}

int64_t StalenessGate::Push(uint32_t worker) {
  REPLICANT_CHECK(CanPush(worker), "worker {} may not push", worker);
  const int64_t staleness = version_ - pulled_.at(worker);
  REPLICANT_CHECK(staleness <= limit_, "{} of at most {}", staleness, limit_);
  pulled_.erase(worker);
  ++version_;
  return staleness;
}

}  // namespace replicant::replicator
