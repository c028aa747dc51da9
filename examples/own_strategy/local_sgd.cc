#include "local_sgd.h"

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "replicator/make_replicator.h"
#include "replicator/steps/replica_team.h"

using namespace replicant;              // NOLINT
using namespace replicant::replicator;  // NOLINT

namespace {

// A pipeline that no two replicas ask at once, because several may draw from
// one source.
class LockedPipeline : public InputPipeline {
 public:
  LockedPipeline(std::unique_ptr<InputPipeline> inner,
                 std::shared_ptr<std::mutex> mutex)
      : inner_(std::move(inner)), mutex_(std::move(mutex)) {}

  const std::vector<InputSpec>& specs() const override {
    return inner_->specs();
  }
  NextResult Next(Clock::TimePoint deadline,
                  std::span<const MutableTensorView> batch) override {
    const std::lock_guard lock(*mutex_);
    return inner_->Next(deadline, batch);
  }

 private:
  const std::unique_ptr<InputPipeline> inner_;
  const std::shared_ptr<std::mutex> mutex_;
};

// The inputs of all replicas.
struct LocalInputs : Input {
  std::vector<std::unique_ptr<Input>> of;
};

class LocalSgd : public Replicator {
 public:
  LocalSgd(const StrategyRequest& request, int period)
      : period_(period),
        accumulation_steps_(request.config.accumulation_steps),
        team_(request.config.replicas) {
    ReplicationConfig config = request.config;
    config.strategy = &Strategy::kSingle;
    config.replicas = 1;
    replicas_.resize(static_cast<size_t>(request.config.replicas));
    // on the thread that computes, whose processors the backend takes; each
    // draws its own random numbers
    team_.Run([&](int i) {
      replicas_[static_cast<size_t>(i)] =
          MakeReplicator(config, request.seed + static_cast<uint64_t>(i),
                         request.rank, request.make_backend);
    });
  }

  int num_replicas() const override { return team_.size(); }
  int accumulation_steps() const override { return accumulation_steps_; }
  runtime::VariableStore& variables() override {
    if (are_apart_) Average();
    // the caller may write variables from which all replicas continue
    is_handed_out_ = true;
    return replicas_[0]->variables();
  }

  // --- for its steps ---

  ReplicaTeam& team() { return team_; }
  void BeginRound() {
    if (!is_handed_out_) return;
    // also gives all replicas the first values of variables
    for (const auto& [name, variable] : replicas_[0]->variables().variables()) {
      const HostTensor value = replicas_[0]->variables().Get(name);
      for (size_t i = 1; i < replicas_.size(); ++i) {
        replicas_[i]->variables().Set(name, value.view());
      }
    }
    is_handed_out_ = false;
  }
  void EndRound() {
    are_apart_ = true;
    if (++num_rounds_ % period_ == 0) Average();
  }

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override {
    const int count = num_replicas();
    auto inputs = std::make_unique<LocalInputs>();
    const auto mutex = std::make_shared<std::mutex>();
    for (int i = 0; i < count; ++i) {
      // a group of one replica has one pipeline in every mode
      const auto make = [&](const InputContext&) {
        return std::make_unique<LockedPipeline>(
            input_fn({.group_id = i, .num_groups = count}), mutex);
      };
      inputs->of.push_back(
          MakeCheckedInput(*replicas_[static_cast<size_t>(i)], make, mode));
    }
    return inputs;
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override;

  void Average() {
    for (const auto& [name, variable] : replicas_[0]->variables().variables()) {
      if (variable.spec.dtype == DType::kF32) AverageOf<float>(name);
      if (variable.spec.dtype == DType::kF64) AverageOf<double>(name);
    }
    are_apart_ = false;
  }
  template <typename T>
  void AverageOf(const std::string& name) {
    HostTensor mean = replicas_[0]->variables().Get(name);
    const std::span<T> sum = mean.mutable_view().Span<T>();
    for (size_t i = 1; i < replicas_.size(); ++i) {
      const HostTensor value = replicas_[i]->variables().Get(name);
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += value.Span<T>()[k];
    }
    for (T& x : sum) x /= static_cast<T>(replicas_.size());
    for (const auto& replica : replicas_) {
      replica->variables().Set(name, mean.view());
    }
  }

  const int period_;
  const int accumulation_steps_;
  ReplicaTeam team_;
  std::vector<std::unique_ptr<Replicator>> replicas_;
  int64_t num_rounds_ = 0;
  // The replicas have made steps since they were averaged.
  bool are_apart_ = false;
  // The first replica's variables are to be given to all.
  bool is_handed_out_ = true;
};

class LocalSgdStep : public Step {
 public:
  LocalSgdStep(LocalSgd* owner, std::vector<std::unique_ptr<Step>> steps)
      : owner_(*owner), steps_(std::move(steps)), is_done_(steps_.size()) {}

  NextResult Run(Clock::TimePoint deadline) override {
    owner_.BeginRound();
    // one without a batch makes its step in a later call; the others wait
    std::vector<NextResult> results(steps_.size(), NextResult::kOk);
    owner_.team().Run([&](int i) {
      const auto at = static_cast<size_t>(i);
      if (!is_done_[at]) results[at] = steps_[at]->Run(deadline);
      is_done_[at] = results[at] == NextResult::kOk ? 1 : 0;
    });
    for (const NextResult worst : {NextResult::kEnd, NextResult::kTimeout}) {
      for (const NextResult result : results) {
        if (result == worst) return worst;
      }
    }
    is_done_.assign(steps_.size(), 0);
    owner_.EndRound();
    return NextResult::kOk;
  }

  TensorView value(std::string_view name) const override {
    return steps_[0]->value(name);
  }
  int64_t num_steps() const override {
    return static_cast<int64_t>(steps_.size());
  }
  const runtime::PlanReport& report() const override {
    return steps_[0]->report();
  }

 private:
  LocalSgd& owner_;
  const std::vector<std::unique_ptr<Step>> steps_;
  // Replicas that have made this round's step; chars, as threads write them.
  std::vector<char> is_done_;
};

std::unique_ptr<Step> LocalSgd::DoBuild(
    Input& input, const std::vector<StepFn>& phases,
    const runtime::CompileOptions& options) {
  auto& inputs = dynamic_cast<LocalInputs&>(input);
  std::vector<std::unique_ptr<Step>> steps;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    steps.push_back(replicas_[i]->BuildJoint(*inputs.of[i], phases, options));
  }
  // new variables begin alike
  is_handed_out_ = true;
  return std::make_unique<LocalSgdStep>(this, std::move(steps));
}

}  // namespace

std::unique_ptr<Replicator> MakeLocalSgd(const StrategyRequest& request,
                                         int period) {
  return std::make_unique<LocalSgd>(request, period);
}
