#include "replicator/strategies/synchronous_replicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/rng.h"
#include "replicator/calls/agreement.h"
#include "replicator/calls/collective_kernels.h"
#include "replicator/calls/device_call_kernels.h"
#include "replicator/steps/replica_ranks.h"

// How a step is made and run.
//
// Build: every replica of this process calls the step function on a graph of
// its own (BuildReplica). The replicas of all processes compare the signatures
// of these graphs, so that a difference is an error now and no deadlock later.
// Each graph is then divided among the logical devices of its replica, and
// every device compiles a plan on its own thread. Replicas of one process share
// one copy of the variables that they train: each makes a part of the update.
//
// Run: every process fetches its part of the batch. Agree() then finds the
// least result of all processes (end < timeout < batch), so that all run the
// step or none. If a program has written a variable since the last step, the
// first replica's values go to all others. The devices run their plans, which
// meet in collectives and transfers. A device that fails aborts these, so that
// no other device waits for it.
namespace replicant::replicator {
namespace {

// Ordered by severity: the least of all processes' values counts.
int32_t ToWord(NextResult result) {
  if (result == NextResult::kEnd) return 0;
  return result == NextResult::kTimeout ? 1 : 2;
}
NextResult FromWord(int32_t word) {
  if (word == 0) return NextResult::kEnd;
  return word == 1 ? NextResult::kTimeout : NextResult::kOk;
}

class SynchronousStep : public Step {
 public:
  SynchronousStep(SynchronousReplicator* replicator, SharedInput* input,
                  StepPhases<CompiledStep> phases, PhaseHooks hooks,
                  bool can_read_ahead)
      : replicator_(*replicator),
        input_(*input),
        phases_(std::move(phases)),
        hooks_(std::move(hooks)),
        // one plan takes all batches, so that it may hold the next one
        reads_ahead_(can_read_ahead && phases_.size() == 1 &&
                     phases_.batches_per_update() == 1 &&
                     phases_.first().can_read_ahead()),
        run_([this](size_t replica, size_t device) {
          try {
            replicator_.RunPlan(replica, [&] {
              current_->RunDevice(replica, device, input_, reads_ahead_);
            });
          } catch (...) {
            if (replica == 0 && device == 0) current_->EndAhead();
            throw;
          }
        }) {
    input_.AddStep();
  }
  ~SynchronousStep() override { input_.RemoveStep(); }

  NextResult Run(Clock::TimePoint deadline) override {
    const NextResult result = replicator_.Agree(input_.Fetch(deadline));
    if (result != NextResult::kOk) return result;
    const bool goes_on = phases_.Advance(
        [this](size_t phase, int64_t batch) { return RunPhase(phase, batch); });
    return goes_on ? result : NextResult::kEnd;
  }

  TensorView value(std::string_view name) const override {
    return phases_.value(name);
  }
  ReduceTimes reduce_times() const override {
    ReduceTimes sum;
    for (const CompiledStep* const plan : phases_.newest()) {
      const ReduceTimes times = plan->reduce_times();
      sum.buckets_s += times.buckets_s;
      sum.calls_s += times.calls_s;
    }
    return sum;
  }
  const runtime::PlanReport& report() const override {
    return phases_.first().report();
  }
  std::vector<runtime::KernelProfile> profile() const override {
    return phases_.first().profile();
  }

 private:
  // Returns whether the run goes on.
  bool RunPhase(size_t index, int64_t batch) {
    if (batch == 0 && hooks_.begin && !replicator_.BeginPhase(hooks_, index)) {
      return false;
    }
    current_ = &phases_.Select(index, batch);
    current_->SetBatchNumber(batch);
    replicator_.RunTeam(run_);
    replicator_.NoteVersions();
    if (phases_.IsLast(batch) && hooks_.end) hooks_.end(index);
    return true;
  }

  SynchronousReplicator& replicator_;
  SharedInput& input_;
  StepPhases<CompiledStep> phases_;
  const PhaseHooks hooks_;
  const bool reads_ahead_;
  // of the run under way
  CompiledStep* current_ = nullptr;
  const SynchronousReplicator::DeviceWork run_;
};

}  // namespace

SynchronousReplicator::SynchronousReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend, int process, int group)
    : SynchronousReplicator(config, seed, make_backend,
                            MakeReplicaRanks(config, process), group) {}

SynchronousReplicator::SynchronousReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend, comm::LocalRanks ranks,
    int group)
    : graph_seed_(MemberSeed(seed, "group", group)),
      config_(config),
      between_(std::move(ranks.processes)),
      replicas_(MakeReplicas(config, seed, make_backend,
                             FirstReplicaOnHost(config, between_.get()),
                             std::move(ranks.ranks))),
      team_(static_cast<int>(replicas_.size()) * config.logical_devices),
      processes_(between_.get()),
      local_{.first = replicas_[0].communicator->rank(),
             .count = static_cast<int>(replicas_.size()),
             .total = config.replicas},
      team_variables_(StoresOf(replicas_), IsHostMemory()),
      build_phase_(config.accumulation_steps) {
  StartQueues();
  ConnectDevices();
}

SynchronousReplicator::~SynchronousReplicator() {
  // the others must not wait for one that is being destroyed
  if (std::uncaught_exceptions() > 0) Abort("a replica ended with an error");
}

std::vector<SynchronousReplicator::Replica> SynchronousReplicator::MakeReplicas(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend, int first_on_host,
    std::vector<std::unique_ptr<comm::Communicator>> communicators) {
  const std::shared_ptr<kernels::PlanCache> tuned_plans =
      config.MakePlanCache();
  std::vector<Replica> replicas;
  for (auto& communicator : communicators) {
    Replica replica;
    const auto number = first_on_host + static_cast<int>(replicas.size());
    replica.backend = make_backend(config.backend,
                                   config.backend_options(number, tuned_plans));
    replica.variables =
        std::make_unique<runtime::VariableStore>(*replica.backend, seed);
    replica.communicator = std::move(communicator);
    replicas.push_back(std::move(replica));
  }
  return replicas;
}

std::vector<runtime::VariableStore*> SynchronousReplicator::StoresOf(
    const std::vector<Replica>& replicas) {
  std::vector<runtime::VariableStore*> stores;
  stores.reserve(replicas.size());
  for (const Replica& replica : replicas) {
    stores.push_back(replica.variables.get());
  }
  return stores;
}

void SynchronousReplicator::StartQueues() {
  // created on each replica's own thread, whose processors the queue inherits
  team_.Run([this](int member) {
    const int num_devices = config_.logical_devices;
    if (member % num_devices != 0) return;
    Replica& replica = replicas_[static_cast<size_t>(member / num_devices)];
    replica.queue =
        std::make_unique<comm::CollectiveQueue>(replica.communicator.get());
  });
}

void SynchronousReplicator::ConnectDevices() {
  if (config_.collectives == ReplicationConfig::Collectives::kHost) return;
  std::vector<DeviceTeam::Member> members;
  for (const Replica& replica : replicas_) {
    members.push_back({replica.backend.get(), replica.communicator.get()});
  }
  device_team_ =
      DeviceTeam::Connect(members, processes_, CommunicatorOptionsOf(config_));
}

std::unique_ptr<Step> SynchronousReplicator::BuildWithHooks(
    Input& input, const std::vector<StepFn>& phases,
    const runtime::CompileOptions& options, const PhaseHooks& hooks) {
  auto* own_input = dynamic_cast<SharedInput*>(&input);
  REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                  "Build: the input is another replicator's");
  ValueNames names;
  std::vector<BuiltPhase<CompiledStep>> compiled;
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    BuildOptions build{
        .seed = graph_seed_,
        .lowering = {.bucket_bytes = static_cast<size_t>(config_.bucket_mib)
                                     << 20,
                     // a debug run must not read a bucket that is being reduced
                     .is_async = !options.check_finite},
        .gradient_format = GradientFormatOf(config_),
        .replica = {.num_logical_devices = config_.logical_devices,
                    .learning_rate_scale = config_.learning_rate_scale}};
    if (hooks.take_over) {
      build.take_over = [&hooks, phase](Graph& graph, StepOutputs outputs) {
        return hooks.take_over(phase, graph, std::move(outputs));
      };
    }
    using Replicas = std::vector<BuiltReplica>;
    BuiltPhase<Replicas> built = build_phase_(
        [&](const Accumulation& accumulation) {
          build.accumulation = accumulation;
          return BuildAll(*own_input, phases[phase], build);
        },
        [](const Replicas& earlier) { return !earlier[0].sums.empty(); });
    names.AddPhase(built.last[0].value_names);
    team_variables_.AddSums(built.last[0].sums);
    // before a plan allocates their memory; earlier batches update none of
    // these
    if (SharesUpdates()) {
      team_variables_.Share(*built.last[0].program.devices[0].graph,
                            built.last[0].variables);
    }
    compiled.push_back(
        MapPhase(std::move(built), [&](const Replicas& replicas) {
          return CompileAll(replicas, *own_input, options);
        }));
  }
  // debug mode reads the inputs of a run while it computes
  return std::make_unique<SynchronousStep>(
      this, own_input,
      StepPhases<CompiledStep>(own_input, std::move(names), std::move(compiled),
                               config_.accumulation_steps),
      hooks, config_.read_ahead && !options.check_finite);
}

CompiledStep SynchronousReplicator::CompileAll(
    const std::vector<BuiltReplica>& built, const SharedInput& input,
    const runtime::CompileOptions& options) {
  AddChannels(built);
  const auto num_devices = static_cast<size_t>(config_.logical_devices);
  shared_updates_.push_back(std::make_unique<SharedUpdates>(
      replicas_.size(), num_devices,
      comm::CommunicatorOptions{.timeout =
                                    CommunicatorOptionsOf(config_).timeout}));
  SharedUpdates& updates = *shared_updates_.back();
  std::vector<std::unique_ptr<kernels::ReplicaGroup>> groups(num_devices);
  for (auto& group : groups) {
    if (SharesUpdates()) group = replicas_[0].backend->CreateReplicaGroup();
  }
  DevicePlans plans(replicas_.size());
  for (auto& devices : plans) devices.resize(num_devices);
  // the devices of a replica share its variables, so they load one after the
  // other
  for (size_t current = 0; current < num_devices; ++current) {
    RunTeam([&](size_t i, size_t device) {
      if (device != current) return;
      Replica& replica = replicas_[i];
      const graph::Program& program = built[i].program.devices[device];
      CollectiveKernels kernels(replica.queue.get(), IsHostMemory());
      std::optional<DeviceCallKernels> on_device;
      if (device_team_) {
        on_device.emplace(&device_team_->of(i), replica.backend.get());
      }
      Channels& channels = *replica.channels.back();
      runtime::CompileOptions with_calls = options;
      with_calls.replica_group = groups[device].get();
      with_calls.make_kernel = [&](const Graph& graph,
                                   const graph::Node& node) {
        std::unique_ptr<kernels::Kernel> kernel;
        if (on_device) kernel = on_device->Make(graph, node);
        if (!kernel) kernel = kernels.Make(graph, node);
        if (!kernel) {
          kernel = channels.MakeKernel(graph, node, IsHostMemory());
        }
        if (!kernel) {
          kernel = updates.MakeKernel(i, device, *replica.backend, graph, node,
                                      kernels.waits());
        }
        return kernel;
      };
      DevicePlan& plan = plans[i][device];
      plan.executor = std::make_unique<runtime::Executor>(
          *program.graph,
          runtime::PlanSpec{.outputs = program.outputs,
                            .updates = program.updates},
          *replica.variables, with_calls);
      plan.waits = kernels.waits();
    });
  }
  updates.Connect();
  return {std::move(plans), built[0].program.outputs, input.specs()};
}

void SynchronousReplicator::AddChannels(
    const std::vector<BuiltReplica>& built) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    replicas_[i].channels.push_back(std::make_unique<Channels>(
        built[i].program.num_channels, CommunicatorOptionsOf(config_).timeout));
  }
}

std::vector<BuiltReplica> SynchronousReplicator::BuildAll(
    const SharedInput& input, const StepFn& step_fn,
    const BuildOptions& options) {
  std::vector<BuiltReplica> built;
  std::exception_ptr error;
  std::string problem;
  try {
    for (int i = 0; i < local_.count; ++i) {
      BuildOptions own = options;
      if (SharesUpdates()) own.sharing = {.id = i, .count = local_.count};
      built.push_back(
          BuildReplica({.id = local_.first + i, .count = local_.total},
                       input.specs(), step_fn, own));
    }
  } catch (const std::exception& e) {
    error = std::current_exception();
    problem =
        fmt::format("replica {} cannot be built: {}",
                    local_.first + static_cast<int>(built.size()), e.what());
  }
  // the others wait for this process's result, good or bad
  const std::vector<std::string> problems = processes_.Gather(problem);
  if (error) std::rethrow_exception(error);
  for (const std::string& other : problems) {
    if (!other.empty()) throw CommError(other);
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
    std::vector<Signature> all;
    for (const std::string& text : processes_.Gather(Encode(signatures))) {
      std::ranges::move(Decode(text), std::back_inserter(all));
    }
    signatures = std::move(all);
  }
  CheckAgreement(signatures);
}

NextResult SynchronousReplicator::Agree(NextResult own) {
  if (is_stopped_) return NextResult::kEnd;
  int32_t words[2] = {ToWord(own), team_variables_.HaveChanged() ? 0 : 1};
  processes_.Min(words);
  const NextResult result = FromWord(words[0]);
  is_stopped_ = processes_.size() > 1 && result == NextResult::kEnd;
  if (result == NextResult::kOk && words[1] == 0)
    team_variables_.Spread(processes_);
  return result;
}

bool SynchronousReplicator::BeginPhase(const PhaseHooks& hooks, size_t phase) {
  int32_t words[2] = {hooks.begin(phase) ? 1 : 0, 1};
  if (team_variables_.HaveChanged()) words[1] = 0;
  processes_.Min(words);
  is_stopped_ = words[0] == 0;
  if (!is_stopped_ && words[1] == 0) team_variables_.Spread(processes_);
  return !is_stopped_;
}

void SynchronousReplicator::RunTeam(const DeviceWork& work) {
  const auto num_devices = static_cast<size_t>(config_.logical_devices);
  team_.Run(
      [&](int member) {
        const auto i = static_cast<size_t>(member);
        work(i / num_devices, i % num_devices);
      },
      [&](int member, const std::exception& e) {
        const size_t i = static_cast<size_t>(member) / num_devices;
        Abort(fmt::format("replica {}: {}", local_.first + static_cast<int>(i),
                          e.what()));
        // memory must outlive the call under way
        replicas_[i].queue->Drain();
      });
}

}  // namespace replicant::replicator
