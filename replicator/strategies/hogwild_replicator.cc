#include "replicator/strategies/hogwild_replicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/racy_memory.h"
#include "base/rng.h"
#include "engine/kernels/backend.h"
#include "replicator/steps/asynchronous_team.h"
#include "replicator/steps/single_plans.h"

namespace replicant::replicator {
namespace {

using graph::VariableSpec;
using runtime::VariableStore;

// A counter variable: see the header.
bool IsCounter(const VariableSpec& spec) {
  return !spec.is_trainable &&
         (spec.dtype == DType::kI64 || spec.dtype == DType::kI32);
}

// Whether checkpoints save the memory of replica `replica`.
bool IsShared(const VariableSpec& spec, int replica) {
  if (IsCounter(spec)) return false;
  const bool is_own = !spec.is_trainable &&
                      spec.agreement == graph::ReplicaAgreement::kPerReplica;
  return !is_own || replica == 0;
}

std::vector<int64_t> ReadCounter(const VariableStore::Variable& variable) {
  const TensorView view(variable.spec.dtype, variable.spec.shape,
                        variable.buffer->data());
  if (view.dtype() == DType::kI64) {
    return {view.Span<int64_t>().begin(), view.Span<int64_t>().end()};
  }
  return {view.Span<int32_t>().begin(), view.Span<int32_t>().end()};
}

void WriteCounter(const std::vector<int64_t>& value,
                  VariableStore::Variable& variable) {
  const MutableTensorView view(variable.spec.dtype, variable.spec.shape,
                               variable.buffer->data());
  if (view.dtype() == DType::kI64) {
    std::ranges::copy(value, view.Span<int64_t>().begin());
  } else {
    std::ranges::transform(value, view.Span<int32_t>().begin(),
                           [](int64_t x) { return static_cast<int32_t>(x); });
  }
  variable.version.Add();
}

// A counter of a step, in the saved store and in each replica's.
struct Counter {
  std::string name;
  VariableStore::Variable* shared = nullptr;
  std::vector<VariableStore::Variable*> own;
  // its increment per step; unknown before the first step
  std::vector<int64_t> stride;
  // by replica: its values before and after the current step
  std::vector<std::vector<int64_t>> begun_at;
  std::vector<std::vector<int64_t>> ended_at;
};

struct HogwildReplica {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<VariableStore> variables;
};

class HogwildReplicator;

class HogwildInput : public Input {
 public:
  HogwildInput(const Replicator* owner, int num_replicas,
               const InputFn& input_fn)
      : owner_(owner) {
    for (int i = 0; i < num_replicas; ++i) {
      pipelines_.push_back(
          input_fn({.group_id = i, .num_groups = num_replicas}));
    }
  }

  const Replicator* owner() const { return owner_; }
  InputPipeline& pipeline(size_t replica) { return *pipelines_[replica]; }

 private:
  const Replicator* owner_;
  std::vector<std::unique_ptr<InputPipeline>> pipelines_;
};

class HogwildReplicator : public Replicator {
 public:
  HogwildReplicator(const ReplicationConfig& config, uint64_t seed,
                    const kernels::BackendFactory& make_backend);

  int num_replicas() const override { return team_.size(); }
  int accumulation_steps() const override {
    return build_phase_.accumulation_steps();
  }
  VariableStore& variables() override {
    team_.AwaitIdle();
    return variables_;
  }
  bool HasResults() const override { return num_results_ > 0; }

  // --- for its steps ---

  AsynchronousTeam& team() { return team_; }
  // Steps that have started, minus those that Run() has returned.
  void CountResults(int change) { num_results_ += change; }

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode /*mode*/) override {
    return std::make_unique<HogwildInput>(this, num_replicas(), input_fn);
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override;
  // Adds the variables of a replica's graph, in shared memory or in memory of
  // its own.
  void Declare(const Graph& graph, int replica);
  // Adds the counters that the graph declares.
  void AddCounters(const Graph& graph, std::vector<Counter>* counters);

  const uint64_t seed_;
  PhaseBuilder build_phase_;
  std::vector<HogwildReplica> replicas_;
  // in the saved store
  std::unique_ptr<kernels::Backend> backend_;
  VariableStore variables_;
  int num_results_ = 0;
  AsynchronousTeam team_;
};

class HogwildStep : public Step {
 public:
  HogwildStep(HogwildReplicator* replicator, HogwildInput* input,
              std::vector<std::unique_ptr<SinglePlans>> plans,
              std::vector<Counter> counters)
      : replicator_(*replicator),
        input_(*input),
        plans_(std::move(plans)),
        ends_update_(plans_.size()),
        counters_(std::move(counters)) {
    for (size_t i = 0; i < plans_.size(); ++i) {
      tasks_.push_back(std::make_unique<AsynchronousTeam::Task>([this, i] {
        plans_[i]->Run();
        // now, since the replica may start another step before Run() returns
        for (Counter& counter : counters_) {
          counter.ended_at[i] = ReadCounter(*counter.own[i]);
        }
      }));
    }
  }
  ~HogwildStep() override {
    // plans must outlive their runs
    replicator_.team().AwaitIdle();
    replicator_.CountResults(-static_cast<int>(begun_.size()));
  }

  NextResult Run(Clock::TimePoint deadline) override {
    const NextResult result = Begin(deadline);
    if (begun_.empty()) return result;
    std::vector<AsynchronousTeam::Task*> tasks;
    tasks.reserve(begun_.size());
    for (const size_t replica : begun_) tasks.push_back(tasks_[replica].get());
    const size_t place = replicator_.team().AwaitOne(tasks);
    newest_ = begun_[place];
    begun_.erase(begun_.begin() + static_cast<int64_t>(place));
    replicator_.CountResults(-1);
    if (ends_update_[newest_] != 0) EndCounters();
    return NextResult::kOk;
  }

  TensorView value(std::string_view name) const override {
    return plans_[newest_]->value(name);
  }
  const runtime::PlanReport& report() const override {
    return plans_[0]->report();
  }
  int group() const override { return static_cast<int>(newest_); }

 private:
  // Starts idle replicas while there are batches. If no replica is at work
  // then, returns the reason.
  NextResult Begin(Clock::TimePoint deadline) {
    NextResult result = NextResult::kEnd;
    if (begun_.empty()) replicator_.team().AwaitIdleMember();
    for (size_t i = 0; i < plans_.size(); ++i) {
      // the first update shows the increments of the counters
      if (!has_strides_ && first_.value_or(i) != i) continue;
      if (std::ranges::find(begun_, i) != begun_.end()) continue;
      if (!replicator_.team().IsIdle(static_cast<int>(i))) {
        // the replica makes another kind of step, which may have counters of
        // its own
        result = NextResult::kTimeout;
        continue;
      }
      // nobody waits for input while a result is due
      const NextResult next = input_.pipeline(i).Next(
          begun_.empty() ? deadline : Clock::Real().Now(), plans_[i]->batch());
      if (next == NextResult::kTimeout) result = next;
      if (next != NextResult::kOk) continue;
      if (plans_[i]->IsAtBegin()) BeginCounters(i);
      // between two batches the replica may have run another step
      for (Counter& counter : counters_) {
        WriteCounter(counter.begun_at[i], *counter.own[i]);
      }
      ends_update_[i] = plans_[i]->IsAtEnd() ? 1 : 0;
      first_ = first_.value_or(i);
      begun_.push_back(i);
      replicator_.CountResults(1);
      replicator_.team().Start(static_cast<int>(i), tasks_[i].get());
    }
    return result;
  }

  void BeginCounters(size_t replica) {
    for (Counter& counter : counters_) {
      std::vector<int64_t> value = ReadCounter(*counter.shared);
      counter.begun_at[replica] = value;
      for (size_t i = 0; i < counter.stride.size(); ++i) {
        value[i] += counter.stride[i];
      }
      if (has_strides_) WriteCounter(value, *counter.shared);
    }
  }

  void EndCounters() {
    for (Counter& counter : counters_) {
      const std::vector<int64_t>& value = counter.ended_at[newest_];
      std::vector<int64_t> stride(value.size());
      std::ranges::transform(value, counter.begun_at[newest_], stride.begin(),
                             std::minus<>());
      if (!has_strides_) {
        counter.stride = stride;
        WriteCounter(value, *counter.shared);
      } else if (stride != counter.stride) {
        throw InvalidArgument(fmt::format(
            "hogwild: counter '{}' grew by {} in one step and by {} in "
            "another; "
            "allowed: the same amount in every step, because replicas do not "
            "wait for each other",
            counter.name, fmt::join(counter.stride, ", "),
            fmt::join(stride, ", ")));
      }
    }
    has_strides_ = true;
  }

  HogwildReplicator& replicator_;
  HogwildInput& input_;
  // by replica
  std::vector<std::unique_ptr<SinglePlans>> plans_;
  std::vector<std::unique_ptr<AsynchronousTeam::Task>> tasks_;
  // whether the batch under way is the last one of an update
  std::vector<char> ends_update_;
  std::vector<Counter> counters_;
  bool has_strides_ = false;
  // the replica whose update came first
  std::optional<size_t> first_;
  // replicas that work on this step, or whose result Run() has not returned
  std::vector<size_t> begun_;
  // the replica whose values are returned
  size_t newest_ = 0;
};

std::vector<HogwildReplica> MakeReplicas(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend) {
  std::vector<HogwildReplica> replicas(static_cast<size_t>(config.replicas));
  for (HogwildReplica& replica : replicas) {
    replica.backend =
        make_backend(config.backend, {.num_threads = config.threads});
    if (!replica.backend->is_host_memory()) {
      throw ConfigError(fmt::format(
          "replication: hogwild updates one copy of the variables in host "
          "memory, which backend {} does not use; use cpu",
          config.backend));
    }
    replica.variables = std::make_unique<VariableStore>(*replica.backend, seed);
  }
  return replicas;
}

HogwildReplicator::HogwildReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend)
    : seed_(seed),
      build_phase_(config.accumulation_steps),
      replicas_(MakeReplicas(config, seed, make_backend)),
      backend_(make_backend(config.backend, {.num_threads = 1})),
      variables_(*backend_, seed),
      team_(config.replicas) {}

void HogwildReplicator::Declare(const Graph& graph, int replica) {
  VariableStore& own = *replicas_[static_cast<size_t>(replica)].variables;
  variables_.Declare(graph);
  for (const VariableSpec& spec : graph.variables()) {
    if (own.Has(spec.name) || !IsShared(spec, replica)) continue;
    const VariableStore::Variable& shared = variables_.at(spec.name);
    ExpectRacesOn(shared.buffer->data(), shared.buffer->size_bytes(),
                  "hogwild: replicas update variables without locks");
    own.Share(shared);
  }
  own.Declare(graph);
}

void HogwildReplicator::AddCounters(const Graph& graph,
                                    std::vector<Counter>* counters) {
  for (const VariableSpec& spec : graph.variables()) {
    if (!IsCounter(spec) ||
        std::ranges::find(*counters, spec.name, &Counter::name) !=
            counters->end()) {
      continue;
    }
    Counter counter{.name = spec.name, .shared = &variables_.at(spec.name)};
    for (HogwildReplica& replica : replicas_) {
      counter.own.push_back(&replica.variables->at(spec.name));
    }
    counter.begun_at.resize(replicas_.size());
    counter.ended_at.resize(replicas_.size());
    counters->push_back(std::move(counter));
  }
}

std::unique_ptr<Step> HogwildReplicator::DoBuild(
    Input& input, const std::vector<StepFn>& phases,
    const runtime::CompileOptions& options) {
  auto* own_input = dynamic_cast<HogwildInput*>(&input);
  REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                  "Build: the input is another replicator's");
  PhaseBuilder build_phase = build_phase_;
  std::vector<std::unique_ptr<SinglePlans>> plans;
  for (int i = 0; i < num_replicas(); ++i) {
    const auto at = static_cast<size_t>(i);
    // each replica numbers the phases alike
    build_phase = build_phase_;
    // the first replica has the random numbers of `single`
    plans.push_back(std::make_unique<SinglePlans>(
        phases, own_input->pipeline(at).specs(),
        MemberSeed(seed_, "replica", i), &build_phase));
    for (const Graph* graph : plans[at]->graphs()) Declare(*graph, i);
  }
  build_phase_ = build_phase;
  std::vector<Counter> counters;
  for (const Graph* graph : plans.back()->graphs()) {
    AddCounters(*graph, &counters);
  }
  for (int i = 0; i < num_replicas(); ++i) {
    const auto at = static_cast<size_t>(i);
    team_.Do(i, [&] { plans[at]->Compile(*replicas_[at].variables, options); });
  }
  return std::make_unique<HogwildStep>(this, own_input, std::move(plans),
                                       std::move(counters));
}

}  // namespace

std::unique_ptr<Replicator> MakeHogwildReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend) {
  return std::make_unique<HogwildReplicator>(config, seed, make_backend);
}

}  // namespace replicant::replicator
