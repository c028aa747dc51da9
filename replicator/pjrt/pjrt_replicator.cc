#include "replicator/pjrt/pjrt_replicator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "engine/pjrt/client.h"
#include "replicator/pjrt/device_step.h"
#include "replicator/pjrt/device_variables.h"
#include "replicator/steps/built_replica.h"
#include "replicator/steps/processes.h"
#include "replicator/steps/shared_input.h"
#include "replicator/steps/stablehlo_step.h"
#include "replicator/steps/step_phases.h"
#include "replicator/steps/step_values.h"

namespace replicant::replicator {
namespace {

std::vector<pjrt::ClientOption> ParseOptions(
    const std::vector<std::string>& texts) {
  std::vector<pjrt::ClientOption> options;
  options.reserve(texts.size());
  for (const std::string& text : texts) {
    options.push_back(pjrt::ParseClientOption(text));
  }
  return options;
}

class PjrtStep : public Step {
 public:
  PjrtStep(SharedInput* input, StepPhases<DeviceStep> phases)
      : input_(*input), phases_(std::move(phases)) {}

  NextResult Run(Clock::TimePoint deadline) override {
    const NextResult result = input_.Fetch(deadline);
    if (result != NextResult::kOk) return result;
    // a phase ends with an exception or goes on
    static_cast<void>(phases_.Advance([this](size_t phase, int64_t batch) {
      phases_.Select(phase, batch).Run(input_, batch);
      return true;
    }));
    return result;
  }

  TensorView value(std::string_view name) const override {
    return phases_.value(name);
  }
  const runtime::PlanReport& report() const override {
    return phases_.first().report();
  }

 private:
  SharedInput& input_;
  StepPhases<DeviceStep> phases_;
};

class PjrtReplicator : public Replicator {
 public:
  PjrtReplicator(const ReplicationConfig& config, uint64_t seed,
                 const kernels::BackendFactory& make_backend)
      : seed_(seed),
        config_(config),
        host_(make_backend("cpu", {.num_threads = config.threads})),
        client_(pjrt::Plugin::Load(config.pjrt.plugin),
                ParseOptions(config.pjrt.options)),
        variables_(client_, config.replicas, *host_, seed),
        build_phase_(config.accumulation_steps) {
    const pjrt::Plugin& plugin = client_.plugin();
    if (config.replicas > client_.num_devices()) {
      throw ConfigError(fmt::format(
          "replication.replicas: {} replicas want as many devices, but "
          "platform {} has {} ({})",
          config.replicas, client_.platform(), client_.num_devices(),
          client_.device_kind(0)));
    }
    spdlog::info("{}: version {} of PJRT, platform {} ({}), {} of {} devices",
                 plugin.file(), plugin.version(), client_.platform(),
                 client_.device_kind(0), config.replicas,
                 client_.num_devices());
  }

  int num_replicas() const override { return config_.replicas; }
  int accumulation_steps() const override { return config_.accumulation_steps; }

  runtime::VariableStore& variables() override { return variables_.Fetch(); }

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override {
    return std::make_unique<SharedInput>(
        this, &processes_,
        LocalReplicas{.count = config_.replicas, .total = config_.replicas},
        input_fn, mode);
  }
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override;

  DeviceStep Compile(const SharedInput& input, StableHloStep step);

  const uint64_t seed_;
  const ReplicationConfig config_;
  Processes processes_{nullptr};
  const std::unique_ptr<kernels::Backend> host_;
  const pjrt::Client client_;
  DeviceVariables variables_;
  PhaseBuilder build_phase_;
};

std::unique_ptr<Step> PjrtReplicator::DoBuild(
    Input& input, const std::vector<StepFn>& phases,
    const runtime::CompileOptions& options) {
  auto* own_input = dynamic_cast<SharedInput*>(&input);
  REPLICANT_CHECK(own_input != nullptr && own_input->owner() == this,
                  "Build: the input is another replicator's");
  if (options.check_finite) {
    throw InvalidArgument(
        "backend pjrt: a step on a device cannot look through its tensors "
        "(check_finite); hint: debug it with backend cpu");
  }
  ValueNames names;
  std::vector<BuiltPhase<DeviceStep>> compiled;
  for (const StepFn& step_fn : phases) {
    const auto build = [&](const Accumulation& accumulation) {
      return BuildStableHloStep(own_input->specs(), step_fn,
                                {.seed = seed_,
                                 .num_replicas = config_.replicas,
                                 .gradient_format = GradientFormatOf(config_),
                                 .accumulation = accumulation,
                                 .precision = options.passes.precision,
                                 .name = options.name});
    };
    compiled.push_back(
        MapPhase(build_phase_(build, &StableHloStep::accumulates),
                 [&](StableHloStep step) {
                   return Compile(*own_input, std::move(step));
                 }));
    names.AddPhase(compiled.back().last.value_names());
  }
  return std::make_unique<PjrtStep>(
      own_input,
      StepPhases<DeviceStep>(own_input, std::move(names), std::move(compiled),
                             config_.accumulation_steps));
}

DeviceStep PjrtReplicator::Compile(const SharedInput& input,
                                   StableHloStep step) {
  return {{.client = client_,
           .variables = variables_,
           .host = *host_,
           .seed = seed_},
          std::move(step),
          input.specs()};
}

}  // namespace

bool HasPjrt() { return true; }

std::unique_ptr<Replicator> MakePjrtReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend) {
  return std::make_unique<PjrtReplicator>(config, seed, make_backend);
}

}  // namespace replicant::replicator
