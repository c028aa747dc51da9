#include "tests/support/fake_cuda/memory_order.h"

namespace replicant::testing {

std::optional<Access> AccessHistory::Add(const Access& access,
                                         const Clock& clock) {
  std::optional<Access> conflict;
  for (const Access& other : accesses_) {
    const bool overlaps = other.begin < access.end && access.begin < other.end;
    if (overlaps && (other.is_write || access.is_write) &&
        !clock.Has(other.stream, other.tick)) {
      conflict = other;
    }
  }
  // what comes before this access and no more than it touches need not be
  // compared again: whatever is ordered after this one is ordered after it
  std::erase_if(accesses_, [&](const Access& other) {
    const bool is_inside =
        access.begin <= other.begin && other.end <= access.end;
    return is_inside && (access.is_write || !other.is_write) &&
           clock.Has(other.stream, other.tick);
  });
  accesses_.push_back(access);
  return conflict;
}

}  // namespace replicant::testing
