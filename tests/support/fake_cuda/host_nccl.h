#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/kernels/cuda/nccl_library.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace replicant::testing {

// The state that the fake NCCLs of several "processes" share: the ranks that
// meet.
//
// A call of a rank is in progress until all ranks have made theirs; the last
// one computes it for all, on the streams of all, as work of the fake driver.
// On a captured stream a call is ready at once; launches of the graph make it,
// and block their threads until all ranks have come, or this one is aborted.
// Sums are in rank order.
//
// Refused, as by NCCL: ranks on one device, a group that is joined within a
// capture. What NCCL leaves undefined is an error of all ranks and a problem of
// the driver: calls that do not fit together, one that some ranks make in a
// graph and others outside of it, graphs of different captures. Other problems
// of the driver: a rank that is destroyed before its graphs, and one that waits
// for the others in a graph for longer than `graph_timeout`. As in NCCL, an
// abort returns when the rank's graphs are destroyed.
//
// Thread-safety: any thread.
class NcclWorld {
 public:
  explicit NcclWorld(
      std::shared_ptr<FakeDriver> driver,
      std::chrono::milliseconds graph_timeout = std::chrono::minutes(1))
      : driver_(std::move(driver)), graph_timeout_(graph_timeout) {}

  // Makes every Poll() of this rank fail from now on.
  void FailRank(int rank, const std::string& problem) EXCLUDES(mutex_);
  // Lets this rank's calls in graphs, from now on, not reach the others.
  void CutOff(int rank) EXCLUDES(mutex_);
  // Ranks that have left.
  int num_leaving() const EXCLUDES(mutex_);
  // Ranks whose communicator was aborted, once there are `count`, or after
  // `graph_timeout`.
  std::set<int> AwaitAborts(size_t count) EXCLUDES(mutex_);

 private:
  friend class HostNccl;
  friend class HostNcclRank;

  struct Pending {
    kernels::DeviceCall call;
    // how many calls the rank has launched or captured before
    uint64_t number;
    StreamPlace place = {};
  };
  struct Group {
    int size = 0;
    std::set<int> joined;
    std::set<int> devices;
    std::set<int> aborted;
    std::map<int, Pending> pending;
    uint64_t num_runs = 0;
    std::map<int, std::string> problems;
  };

  // A rank's part in a call, when its stream comes to it.
  CUresult Meet(const std::string& id, int rank, const Pending& pending)
      EXCLUDES(mutex_);
  // Waits in a graph until the others have come or the rank is aborted.
  CUresult AwaitOthers(Group& group, int rank, const char* name)
      REQUIRES(mutex_);
  // Runs the pending calls of a group, which are complete.
  void Run(Group& group) REQUIRES(mutex_);
  // Why the pending calls cannot be one; empty if they can.
  static std::string WhyNotOneCall(const Group& group);

  const std::shared_ptr<FakeDriver> driver_;
  const std::chrono::milliseconds graph_timeout_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Group> groups_ GUARDED_BY(mutex_);
  std::map<int, std::string> failures_ GUARDED_BY(mutex_);
  std::set<int> cut_off_ GUARDED_BY(mutex_);
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
