#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/kernels/cuda/convolution_library.h"
#include "engine/kernels/cuda/device.h"
#include "engine/kernels/cuda/matmul_library.h"
#include "engine/kernels/plan_cache.h"

namespace replicant::kernels::cuda {

// Plans problems with the libraries of a device: by their first choice, or,
// with a cache, by the candidate that is fastest on this device.
//
// A problem that is not in the cache is tuned: each candidate is timed on
// separate operands (launch_timer.h), whose contents are undefined. A candidate
// that fails is left out. The library's choice stays, with a warning, if all
// fail or if operands and workspace do not fit into the free memory; such a
// problem is not cached. Candidates keep the library's rules: none rounds the
// operands of an f32 problem without TF32.
//
// Never in a capture: tuning allocates and waits.
//
// Thread-safety: any thread; problems are tuned one at a time.
class PlanTuner {
 public:
  // Without a cache nothing is timed.
  PlanTuner(std::shared_ptr<const Device> device,
            std::shared_ptr<PlanCache> cache)
      : device_(std::move(device)), cache_(std::move(cache)) {}

  // As Plan() of the libraries. Throw DeviceError.
  std::unique_ptr<ConvolutionPlan> Plan(const ConvolutionProblem& problem);
  std::unique_ptr<MatMulPlan> Plan(const MatMulProblem& problem);

  // Logs what was tuned, or found in the cache, since the last report.
  void Report() EXCLUDES(mutex_);

 private:
  // Counts since the last report.
  struct Summary {
    int num_found = 0;   // in the cache
    int num_tuned = 0;   // among several candidates
    int num_kept = 0;    // of the tuned: the library's choice is the fastest
    int num_failed = 0;  // candidates
    double largest_gain = 1.0;
    std::string largest_gain_of;  // problem
    std::chrono::duration<double> time{0.0};
  };

  template <typename Library, typename Problem>
  auto PlanBy(Library& library, const Problem& problem);
  template <typename Library, typename Problem, typename LibraryPlan>
  std::optional<PlanCache::Entry> Tune(Library& library, const Problem& problem,
                                       std::unique_ptr<LibraryPlan>* chosen);
  // Times candidates by their names; nullopt for one that fails.
  std::vector<std::optional<double>> TimeAll(
      const std::string& problem, const std::vector<std::string>& names,
      const std::function<void(size_t candidate, CUstream)>& launch)
      EXCLUDES(mutex_);
  void Note(const std::string& problem, const PlanCache::Entry& entry,
            bool is_first) EXCLUDES(mutex_);

  const std::shared_ptr<const Device> device_;
  const std::shared_ptr<PlanCache> cache_;
  Mutex mutex_;
  Summary summary_ GUARDED_BY(mutex_);
};

}  // namespace replicant::kernels::cuda
