#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/kernels/cuda/nccl_library.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace replicant::testing {

// What the fake NCCLs of several "processes" share: the ranks that meet.
//
// A call of a rank is in progress until all ranks have made theirs; the last
// one computes it for all, on the streams of all, as work of the fake driver.
// Ranks on one device are refused, as NCCL does, and so are calls that do not
// fit together. Sums are in rank order.
//
// Thread-safety: any thread.
class NcclWorld {
 public:
  explicit NcclWorld(std::shared_ptr<FakeDriver> driver)
      : driver_(std::move(driver)) {}

  // Makes every Poll() of this rank fail from now on.
  void FailRank(int rank, const std::string& problem) EXCLUDES(mutex_);
  // Ranks that have left.
  int num_leaving() const EXCLUDES(mutex_);
  // Ranks whose communicator was aborted.
  std::set<int> aborted() const EXCLUDES(mutex_);

 private:
  friend class HostNccl;
  friend class HostNcclRank;

  struct Pending {
    kernels::DeviceCall call;
    CUstream stream;
  };
  struct Group {
    int size = 0;
    std::set<int> joined;
    std::set<int> devices;
    std::map<int, Pending> pending;
    std::map<int, std::string> problems;
  };

  // Runs the pending calls of a group, which are complete.
  void Run(Group& group) REQUIRES(mutex_);

  const std::shared_ptr<FakeDriver> driver_;
  mutable Mutex mutex_;
  std::map<std::string, Group> groups_ GUARDED_BY(mutex_);
  std::map<int, std::string> failures_ GUARDED_BY(mutex_);
  std::set<int> aborted_ GUARDED_BY(mutex_);
  int num_leaving_ GUARDED_BY(mutex_) = 0;
};

struct HostNcclOptions {
  std::string version = "2.28.9";
  // Not empty: what every use of the library fails with.
  std::string missing = {};
};

// NCCL of one "process".
std::unique_ptr<kernels::cuda::NcclLibrary> MakeHostNccl(
    std::shared_ptr<NcclWorld> world, const HostNcclOptions& options = {});

}  // namespace replicant::testing
