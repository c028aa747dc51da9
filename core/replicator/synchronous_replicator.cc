#include "core/replicator/synchronous_replicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/comm/mpi_communicator.h"
#include "core/comm/thread_communicator.h"
#include "core/kernels/backend.h"
#include "core/replicator/agreement.h"
#include "core/replicator/built_replica.h"
#include "core/replicator/collective_kernels.h"
#include "core/replicator/processes.h"
#include "core/replicator/replica_team.h"
#include "core/replicator/shared_input.h"
#include "core/replicator/step_interface.h"

namespace replicant::replicator {
namespace {

// From the end to the step: of what processes say, the least counts.
int32_t ToWord(NextResult result) {
  if (result == NextResult::kEnd) return 0;
  return result == NextResult::kTimeout ? 1 : 2;
}
NextResult FromWord(int32_t word) {
  if (word == 0) return NextResult::kEnd;
  return word == 1 ? NextResult::kTimeout : NextResult::kOk;
}

// What a replica computes with.
struct Replica {
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<runtime::VariableStore> variables;
  std::unique_ptr<comm::Communicator> communicator;
  std::unique_ptr<comm::CollectiveQueue> queue;
};

// A plan of one replica, with what its calls measure.
struct ReplicaPlan {
  std::unique_ptr<runtime::Executor> executor;
  std::shared_ptr<const CallWaits> waits;
};

// The replicas of this process and what they share.
class SynchronousReplicator : public Replicator {
 public:
  SynchronousReplicator(const ReplicationConfig& config, uint64_t seed)
      : seed_(seed),
        config_(config),
        replicas_(MakeReplicas(config, seed)),
        team_(static_cast<int>(replicas_.size())),
        processes_(StartQueues(config.strategy)),
        local_{.first = processes_.rank(),
               .count = static_cast<int>(replicas_.size()),
               .total = config.replicas} {}

  ~SynchronousReplicator() override {
    // the others are not to wait for one that goes down
    if (std::uncaught_exceptions() > 0) Abort("a replica ended with an error");
  }

  int num_replicas() const override { return local_.total; }
  int accumulation_steps() const override { return config_.accumulation_steps; }
  int process_id() const override { return processes_.rank(); }
  std::unique_ptr<Step> Build(Input& input, const StepFn& step_fn,
                              const runtime::CompileOptions& options) override;
  runtime::VariableStore& variables() override {
    return *replicas_[0].variables;
  }
  void Stop() override {
    if (processes_.size() == 1 || is_stopped_) return;
    // they come to it with what they have, which this outdoes
    static_cast<void>(Agree(NextResult::kEnd));
  }

  // --- for its steps ---

  // What all processes come to when this one came to `own`: the least of all.
  // If it is kOk the variables of all replicas are the first one's.
  NextResult Agree(NextResult own);
  // Runs `work` for every replica of this process; a failure ends all.
  void RunTeam(const std::function<void(int)>& work);
  // Says that variables have been written by steps alone.
  void NoteVersions();

 private:
  static std::vector<Replica> MakeReplicas(const ReplicationConfig& config,
                                           uint64_t seed);
  // Gives every replica its queue; returns the one between processes, if there
  // are several.
  comm::CollectiveQueue* StartQueues(Strategy strategy);
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override {
    return std::make_unique<SharedInput>(this, &processes_, local_, input_fn,
                                         mode);
  }
  std::vector<BuiltReplica> BuildAll(const SharedInput& input,
                                     const StepFn& step_fn,
                                     const BuildOptions& options);
  std::vector<ReplicaPlan> CompileAll(const std::vector<BuiltReplica>& built,
                                      const runtime::CompileOptions& options);
  void CheckAgreementOfAll(const std::vector<BuiltReplica>& built);
  void Abort(const std::string& reason) {
    for (Replica& replica : replicas_) replica.communicator->Abort(reason);
  }
  // Whether somebody has written a variable since NoteVersions().
  bool HaveVariablesChanged() const;
  void SpreadVariables();

  const uint64_t seed_;
  const ReplicationConfig config_;
  std::vector<Replica> replicas_;
  ReplicaTeam team_;
  Processes processes_;
  const LocalReplicas local_;
  // of the first replica, by name, after the last step
  std::map<std::string, uint64_t> versions_;
  bool is_stopped_ = false;
  int num_steps_ = 0;
};

// The plans of all replicas of this process for one role of a batch.
class PlanSet {
 public:
  PlanSet(std::vector<ReplicaPlan> plans, const std::vector<InputSpec>& specs)
      : plans_(std::move(plans)) {
    for (const ReplicaPlan& plan : plans_) {
      std::vector<MutableTensorView> batch;
      for (const InputSpec& spec : specs) {
        batch.push_back(plan.executor->input(spec.name));
      }
      batches_.push_back(std::move(batch));
      for (const std::string& name : plan.executor->input_names()) {
        if (name == kIsFirstBatch) {
          is_first_.push_back(plan.executor->input(name));
        } else if (name == kBatchNumber) {
          batch_number_.push_back(plan.executor->input(name));
        }
      }
    }
  }

  // Says which of an update's batches the next run is for.
  void SetBatchNumber(int64_t number) {
    for (const MutableTensorView& view : is_first_) {
      view.Span<bool>()[0] = number == 0;
    }
    for (const MutableTensorView& view : batch_number_) {
      view.Span<int64_t>()[0] = number;
    }
  }
  void RunReplica(size_t i, const SharedInput& input) {
    input.CopyTo(static_cast<int>(i), batches_[i]);
    plans_[i].executor->Run();
  }

  const runtime::Executor& first() const { return *plans_[0].executor; }
  ReduceTimes reduce_times() const {
    ReduceTimes times;
    for (size_t call = 0; call < plans_[0].waits->size(); ++call) {
      double least = std::numeric_limits<double>::infinity();
      for (const ReplicaPlan& plan : plans_) {
        least = std::min(least, (*plan.waits)[call].seconds);
      }
      const bool is_bucket = (*plans_[0].waits)[call].is_bucket;
      (is_bucket ? times.buckets_s : times.calls_s) += least;
    }
    return times;
  }

 private:
  std::vector<ReplicaPlan> plans_;
  // by replica: where its rows go
  std::vector<std::vector<MutableTensorView>> batches_;
  // of the replicas whose plans ask for it
  std::vector<MutableTensorView> is_first_, batch_number_;
};

class SynchronousStep : public Step {
 public:
  // `earlier` is for all batches of an update but the last, if it has several.
  SynchronousStep(SynchronousReplicator* replicator, SharedInput* input,
                  std::vector<std::string> value_names, PlanSet last,
                  std::optional<PlanSet> earlier)
      : replicator_(*replicator),
        input_(*input),
        value_names_(std::move(value_names)),
        last_(std::move(last)),
        earlier_(std::move(earlier)),
        current_(&last_),
        run_([this](int i) {
          current_->RunReplica(static_cast<size_t>(i), input_);
        }) {}

  NextResult Run(Clock::TimePoint deadline) override {
    const NextResult result = replicator_.Agree(input_.Fetch(deadline));
    if (result != NextResult::kOk) return result;
    input_.Use();
    const int count = replicator_.accumulation_steps();
    current_ = batch_number_ + 1 < count ? &*earlier_ : &last_;
    current_->SetBatchNumber(batch_number_);
    replicator_.RunTeam(run_);
    replicator_.NoteVersions();
    batch_number_ = (batch_number_ + 1) % count;
    return result;
  }

  TensorView value(std::string_view name) const override {
    return current_->first().output(FindValue(value_names_, name));
  }
  ReduceTimes reduce_times() const override { return current_->reduce_times(); }
  const runtime::PlanReport& report() const override {
    return last_.first().report();
  }

 private:
  SynchronousReplicator& replicator_;
  SharedInput& input_;
  const std::vector<std::string> value_names_;
  PlanSet last_;
  std::optional<PlanSet> earlier_;
  // those of the last run, or of the one under way
  PlanSet* current_;
  // of the next batch, within its update
  int64_t batch_number_ = 0;
  const std::function<void(int)> run_;
};

std::vector<Replica> SynchronousReplicator::MakeReplicas(
    const ReplicationConfig& config, uint64_t seed) {
  const comm::CommunicatorOptions options{
      .timeout = std::chrono::milliseconds(
          static_cast<int64_t>(config.timeout_s * 1e3))};
  std::vector<std::unique_ptr<comm::Communicator>> communicators;
  if (config.strategy == Strategy::kInGraph) {
    communicators = comm::MakeThreadCommunicators(config.replicas, options);
  } else {
    communicators.push_back(comm::MakeMpiCommunicator(options));
    if (communicators[0]->size() != config.replicas) {
      throw ConfigError(fmt::format(
          "learner.replication: between_graph of {} replicas wants as many "
          "processes, not {}; hint: mpirun -n {}",
          config.replicas, communicators[0]->size(), config.replicas));
    }
  }
  std::vector<Replica> replicas;
  for (auto& communicator : communicators) {
    Replica replica;
    replica.backend =
        kernels::MakeBackend(config.backend, {.num_threads = config.threads});
    if (!replica.backend->is_host_memory()) {
      throw ConfigError(fmt::format(
          "learner.replication: replicas on {} cannot reach each other; use "
          "cpu",
          config.backend));
    }
    replica.variables =
        std::make_unique<runtime::VariableStore>(*replica.backend, seed);
    replica.communicator = std::move(communicator);
    replicas.push_back(std::move(replica));
  }
  return replicas;
}

comm::CollectiveQueue* SynchronousReplicator::StartQueues(Strategy strategy) {
  // from each replica's own thread: the queue's inherits its processors
  team_.Run([this](int i) {
    Replica& replica = replicas_[static_cast<size_t>(i)];
    replica.queue =
        std::make_unique<comm::CollectiveQueue>(replica.communicator.get());
  });
  return strategy == Strategy::kBetweenGraph ? replicas_[0].queue.get()
                                             : nullptr;
}

std::unique_ptr<Step> SynchronousReplicator::Build(
    Input& input, const StepFn& step_fn,
    const runtime::CompileOptions& options) {
  auto* own_input = dynamic_cast<SharedInput*>(&input);
  REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                  "Build: the input is another replicator's");
  BuildOptions build{
      .seed = seed_,
      .lowering = {.bucket_bytes = static_cast<size_t>(config_.bucket_mib)
                                   << 20,
                   // a bucket under way is not to be looked through
                   .is_async = !options.check_finite},
      .wire = config_.wire,
      .accumulation_steps = config_.accumulation_steps,
      .step_number = num_steps_++};
  std::optional<PlanSet> earlier;
  if (config_.accumulation_steps > 1) {
    build.role = BatchRole::kEarlier;
    earlier.emplace(CompileAll(BuildAll(*own_input, step_fn, build), options),
                    own_input->specs());
    build.role = BatchRole::kLast;
  }
  std::vector<BuiltReplica> built = BuildAll(*own_input, step_fn, build);
  PlanSet last(CompileAll(built, options), own_input->specs());
  return std::make_unique<SynchronousStep>(this, own_input,
                                           std::move(built[0].value_names),
                                           std::move(last), std::move(earlier));
}

std::vector<ReplicaPlan> SynchronousReplicator::CompileAll(
    const std::vector<BuiltReplica>& built,
    const runtime::CompileOptions& options) {
  std::vector<ReplicaPlan> plans(replicas_.size());
  RunTeam([&](int i) {
    const auto at = static_cast<size_t>(i);
    const graph::Program& program = built[at].lowered.program;
    CollectiveKernels kernels(replicas_[at].queue.get());
    runtime::CompileOptions with_calls = options;
    with_calls.make_kernel = [&kernels](const Graph& graph,
                                        const graph::Node& node) {
      return kernels.Make(graph, node);
    };
    plans[at] = {.executor = std::make_unique<runtime::Executor>(
                     *program.graph,
                     runtime::PlanSpec{.outputs = program.outputs,
                                       .updates = program.updates},
                     *replicas_[at].variables, with_calls),
                 .waits = kernels.waits()};
  });
  return plans;
}

std::vector<BuiltReplica> SynchronousReplicator::BuildAll(
    const SharedInput& input, const StepFn& step_fn,
    const BuildOptions& options) {
  std::vector<BuiltReplica> built;
  std::exception_ptr error;
  std::string problem;
  try {
    for (int i = 0; i < local_.count; ++i) {
      built.push_back(
          BuildReplica({.id = local_.first + i, .count = local_.total},
                       input.specs(), step_fn, options));
    }
  } catch (const std::exception& e) {
    error = std::current_exception();
    problem = e.what();
  }
  // the others wait for a word from this process, good or bad
  const std::vector<std::string> problems = processes_.Gather(problem);
  if (error) std::rethrow_exception(error);
  for (size_t process = 0; process < problems.size(); ++process) {
    if (problems[process].empty()) continue;
    throw CommError(fmt::format("replica {} cannot be built: {}", process,
                                problems[process]));
  }
  CheckAgreementOfAll(built);
  return built;
}

void SynchronousReplicator::CheckAgreementOfAll(
    const std::vector<BuiltReplica>& built) {
  std::vector<Signature> signatures;
  signatures.reserve(built.size());
  for (const BuiltReplica& replica : built) {
    signatures.push_back(replica.signature);
  }
  if (processes_.size() > 1) {
    const std::vector<std::string> all =
        processes_.Gather(Encode(signatures[0]));
    signatures.clear();
    for (const std::string& text : all) signatures.push_back(Decode(text));
  }
  CheckAgreement(signatures);
}

NextResult SynchronousReplicator::Agree(NextResult own) {
  if (is_stopped_) return NextResult::kEnd;
  int32_t words[2] = {ToWord(own), HaveVariablesChanged() ? 0 : 1};
  processes_.Min(words);
  const NextResult result = FromWord(words[0]);
  is_stopped_ = processes_.size() > 1 && result == NextResult::kEnd;
  if (result == NextResult::kOk && words[1] == 0) SpreadVariables();
  return result;
}

void SynchronousReplicator::RunTeam(const std::function<void(int)>& work) {
  const std::function<void(int)> guarded = [&](int i) {
    Replica& replica = replicas_[static_cast<size_t>(i)];
    try {
      work(i);
    } catch (const std::exception& e) {
      replica.communicator->Abort(
          fmt::format("replica {}: {}", local_.first + i, e.what()));
      // its memory is not to go while a call is under way
      replica.queue->Drain();
      throw;
    }
  };
  team_.Run(guarded);
}

void SynchronousReplicator::NoteVersions() {
  for (const auto& [name, variable] : variables().variables()) {
    versions_[name] = variable.version;
  }
}

bool SynchronousReplicator::HaveVariablesChanged() const {
  const auto& variables = replicas_[0].variables->variables();
  for (const auto& [name, variable] : variables) {
    const auto noted = versions_.find(name);
    // one that is new is the same everywhere
    const uint64_t version = noted == versions_.end() ? 0 : noted->second;
    if (variable.version != version) return true;
  }
  return false;
}

void SynchronousReplicator::SpreadVariables() {
  for (const auto& [name, ignored] : variables().variables()) {
    runtime::VariableStore::Variable& first = variables().at(name);
    const MutableTensorView view(first.spec.dtype, first.spec.shape,
                                 first.buffer->data());
    if (processes_.size() > 1) {
      processes_.Broadcast(view);
      ++first.version;
    }
    for (size_t i = 1; i < replicas_.size(); ++i) {
      replicas_[i].variables->Set(name, view);
    }
  }
}

}  // namespace

std::unique_ptr<Replicator> MakeSynchronousReplicator(
    const ReplicationConfig& config, uint64_t seed) {
  return std::make_unique<SynchronousReplicator>(config, seed);
}

}  // namespace replicant::replicator
