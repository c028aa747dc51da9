#include "learner/workloads/agent/agent_workload.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "agents/agent_steps.h"
#include "base/error.h"
#include "engine/graph/passes/passes.h"
#include "engine/runtime/numeric_check.h"
#include "learner/workloads/agent/agent_step.h"

namespace replicant::learner {
namespace {

// In checkpoints. Those of older versions have none.
constexpr const char* kLostStepsKey = "lost_steps";

// Threads of the replicas of this process that share a batch: they wait while
// it is put in order.
int ThreadsOf(const replicator::ReplicationConfig& config) {
  return config.threads * (config.strategy->has_processes
                               ? config.replicas_per_process
                               : config.replicas_of_group());
}

// 0 of nothing.
double Mean(std::span<const float> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(std::max<size_t>(1, values.size()));
}

// Mean over the rows that are no prior data; 0 if all are. values [B]
double MeanOfActed(const replay::Batch& batch,
                   const std::vector<int64_t>& values) {
  double sum = 0.0;
  int64_t count = 0;
  for (size_t row = 0; row < values.size(); ++row) {
    if (batch.shards[row] == replay::Batch::kPriorShard) continue;
    sum += static_cast<double>(values[row]);
    ++count;
  }
  return sum / static_cast<double>(std::max<int64_t>(1, count));
}

// The frames that a learner keeps on its device. Null on the CPU, which reads
// them where they lie, for replicas, whose device has a part of a batch, and
// for several logical devices, whose plans would each copy frames.
std::unique_ptr<ResidentFrames> MakeResidentFrames(
    const LearnerConfig& learner, const agents::LearningSpec& spec,
    replicator::Replicator& replicator) {
  const int64_t frame_bytes =
      spec.task.has_pixels ? spec.task.frame_bytes() : 0;
  if (frame_bytes == 0 || learner.frame_store.max_bytes == 0 ||
      learner.replication.strategy != &replicator::Strategy::kSingle ||
      learner.replication.logical_devices > 1) {
    return nullptr;
  }
  kernels::Backend& backend = replicator.variables().backend();
  if (backend.is_host_memory()) return nullptr;
  const replay::BatchForm form{.stack = spec.task.frame_stack,
                               .window = spec.window};
  const replay::RowBytes row = form.BytesOf({.frame_bytes = 1});
  return std::make_unique<ResidentFrames>(
      backend, ResidentFrames::Options{
                   .frame_bytes = frame_bytes,
                   .max_bytes = learner.frame_store.max_bytes,
                   .frames_per_batch =
                       learner.batch_size * (row.frames + row.next_frames)});
}

}  // namespace

AgentWorkload::AgentWorkload(std::shared_ptr<const agents::Agent> agent,
                             WorkloadArguments arguments)
    : agent_(std::move(agent)),
      spec_(std::move(arguments.spec)),
      source_(arguments.source),
      replicator_(std::move(arguments.replicator)),
      transitions_(source_) {
  agent_->Check(spec_);
  const LearnerConfig& learner = arguments.learner;
  frames_ = MakeResidentFrames(learner, spec_, *replicator_);
  // one process speaks with the replay, so that a checkpoint has one cut
  input_ = replicator_->MakeInput(
      [&](const replicator::InputContext& context) {
        return transitions_.MakePipeline(
            context.group_id, spec_,
            context.PipelineBatchSize(learner.batch_size),
            ThreadsOf(learner.replication), frames_.get());
      },
      replicator::InputMode::kSingle);
  const auto step = [&](replicator::ReplicaContext& replica,
                        const replicator::Inputs& inputs) {
    const AgentStep built =
        BuildAgentStep(replica, inputs, *agent_, spec_,
                       frames_ == nullptr ? nullptr : &frames_->type());
    // every replica builds the same
    losses_ = built.losses;
    scalars_ = built.scalars;
    values_ = built.values;
    published_.clear();
    for (const auto& variable : replica.graph().variables()) {
      if (agent_->IsOfPolicy(variable.name)) {
        published_.push_back(variable.name);
      }
    }
    return built.outputs;
  };
  runtime::CompileOptions options{.passes = {.precision = learner.precision}};
  if (frames_ != nullptr) options.residents[kFrameTable] = frames_.get();
  step_ = replicator_->Build(*input_, step, options);
  RunAgentStart(*agent_, spec_, arguments.seed, replicator_->variables());
}

NextResult AgentWorkload::Step(Clock::TimePoint deadline) {
  const NextResult result = RunStep(deadline);
  if (result == NextResult::kOk && transitions_.is_drawing()) {
    // a replay that lost steps counts them late
    num_agent_steps_ =
        std::max(num_agent_steps_, batch().total_steps / spec_.writes_per_step);
    // batches that were drawn before Restore() count fewer
    lost_steps_ = std::max(lost_steps_, batch().lost_steps);
    Inspect(pipeline());
    source_->UpdatePriorities(batch(), step_->value("priority").Span<float>());
  }
  return result;
}

NextResult AgentWorkload::RunStep(Clock::TimePoint deadline) {
  try {
    return step_->Run(deadline);
  } catch (const runtime::NumericError& error) {
    throw runtime::NumericError(fmt::format(
        "{}; hint: the replay holds it: mend what has written it, then resume "
        "the run, which leaves such steps out",
        error.what()));
  }
}

std::optional<double> AgentWorkload::ReplayRatio(int64_t num_steps) const {
  // a process that draws nothing does not count them
  if (num_agent_steps_ == 0) return std::nullopt;
  return static_cast<double>(num_steps) / static_cast<double>(num_agent_steps_);
}

std::map<std::string, std::string> AgentWorkload::State() const {
  return {{agents::kAgentStepsKey, std::to_string(num_agent_steps_)},
          {kLostStepsKey, std::to_string(lost_steps_)}};
}

void AgentWorkload::Restore(const std::map<std::string, std::string>& state) {
  const auto steps = agents::AgentStepsIn(state);
  if (!steps) {
    throw InvalidArgument(
        fmt::format("checkpoint: no {}", agents::kAgentStepsKey));
  }
  num_agent_steps_ = *steps;
  lost_steps_ = agents::AgentStepsIn(state, kLostStepsKey).value_or(0);
  if (source_ != nullptr) source_->SetLostSteps(lost_steps_);
}

std::map<std::string, std::string> AgentWorkload::PublishedMetadata() const {
  return State();
}

std::vector<std::string> AgentWorkload::ModelVariables() {
  graph::Graph graph;
  const auto outputs = BuildModel(graph, /*batch_size=*/1);
  // of the policy and its average the graph has both, and reads one
  const graph::Program program =
      graph::ExtractProgram(graph, {outputs.at(0).second}, {});
  std::vector<std::string> names;
  for (const graph::Node& node : program.graph->nodes()) {
    if (node.op != &graph::VariableOp()) continue;
    names.push_back(program.graph
                        ->variable(static_cast<graph::VariableId>(
                            node.attributes.Int("variable")))
                        .name);
  }
  return names;
}

std::vector<std::pair<std::string, graph::Output>> AgentWorkload::BuildModel(
    graph::Graph& graph, int64_t batch_size) const {
  return {{"action", agent_->BuildPolicy(graph, spec_.task,
                                         {.num_environments = batch_size,
                                          .has_noise = false,
                                          .has_named_images = true})}};
}

std::vector<std::pair<std::string, double>> AgentWorkload::Scalars() const {
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto* names : {&losses_, &scalars_}) {
    for (const std::string& name : *names) {
      scalars.emplace_back(
          name, static_cast<double>(step_->value(name).Span<float>()[0]));
    }
  }
  for (const std::string& name : values_) {
    scalars.emplace_back(name, Mean(step_->value(name).Span<float>()));
  }
  scalars.emplace_back("reward", Mean(pipeline().returns()));
  scalars.emplace_back("priority",
                       Mean(step_->value("priority").Span<float>()));
  scalars.emplace_back("times_sampled",
                       MeanOfActed(batch(), batch().times_sampled));
  // writers divide their items evenly among the services
  const auto num_services =
      static_cast<double>(std::max<size_t>(1, batch().num_restarts.size()));
  scalars.emplace_back("sample_age",
                       num_services * MeanOfActed(batch(), batch().ages));
  if (source_ != nullptr) {
    for (auto& own : source_->Scalars()) scalars.push_back(std::move(own));
  }
  if (frames_ != nullptr) {
    scalars.emplace_back("frame_store_sent_frames",
                         static_cast<double>(frames_->num_sent()));
  }
  return scalars;
}

std::vector<std::pair<std::string, std::span<const float>>>
AgentWorkload::Histograms() const {
  std::vector<std::pair<std::string, std::span<const float>>> histograms = {
      {"priority", step_->value("priority").Span<float>()}};
  for (const std::string& name : values_) {
    histograms.emplace_back(name, step_->value(name).Span<float>());
  }
  return histograms;
}

void AgentWorkload::Inspect(const TransitionPipeline& pipeline) {
  const auto misfit =
      agent_->FindMisfit(spec_, pipeline.returns(), pipeline.discounts());
  // a policy that improves may leave the range further and further
  if (!misfit || misfit->size <= 2.0 * warned_size_) return;
  spdlog::warn("{}", misfit->why);
  warned_size_ = misfit->size;
}

}  // namespace replicant::learner
