#include "replicator/pjrt/pjrt_replicator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "engine/pjrt/client.h"
#include "replicator/pjrt/device_step.h"
#include "replicator/pjrt/device_variables.h"
#include "replicator/steps/phase_sequence.h"
#include "replicator/steps/processes.h"
#include "replicator/steps/shared_input.h"
#include "replicator/steps/stablehlo_step.h"
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
  struct Phase {
    DeviceStep last;
    // for all batches of an update but the last; none for a phase that runs on
    // each batch alone
    std::optional<DeviceStep> earlier;
    // of the last run
    DeviceStep* newest = nullptr;
  };

  PjrtStep(SharedInput* input, int batches_per_update,
           std::vector<Phase> phases)
      : input_(*input),
        phases_(std::move(phases)),
        sequence_(input, phases_.size(), batches_per_update) {
    for (Phase& phase : phases_) {
      phase.newest = &phase.last;
      names_.AddPhase(phase.last.value_names());
    }
  }

  NextResult Run(Clock::TimePoint deadline) override {
    const NextResult result = input_.Fetch(deadline);
    if (result != NextResult::kOk) return result;
    // a phase ends with an exception or goes on
    static_cast<void>(sequence_.Advance([this](size_t index, int64_t batch) {
      Phase& phase = phases_[index];
      phase.newest = sequence_.IsLast(batch) || !phase.earlier
                         ? &phase.last
                         : &*phase.earlier;
      phase.newest->Run(input_, batch);
      return true;
    }));
    return result;
  }

  TensorView value(std::string_view name) const override {
    const ValueNames::Place place = names_.Find(name);
    return phases_[place.phase].newest->value(place.index);
  }
  const runtime::PlanReport& report() const override {
    return phases_[0].last.report();
  }

 private:
  SharedInput& input_;
  std::vector<Phase> phases_;
  PhaseSequence sequence_;
  ValueNames names_;
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
        variables_(client_, config.replicas, *host_, seed) {
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
  int process_id() const override { return 0; }

  runtime::VariableStore& variables() override { return variables_.Fetch(); }
  void Stop() override {}

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
  int num_accumulating_phases_ = 0;
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
  std::vector<PjrtStep::Phase> compiled;
  int batches_per_update = 1;
  for (const StepFn& step_fn : phases) {
    StableHloStepOptions step{.seed = seed_,
                              .num_replicas = config_.replicas,
                              .gradient_format = GradientFormatOf(config_),
                              .precision = options.passes.precision,
                              .name = options.name};
    std::optional<DeviceStep> earlier;
    if (config_.accumulation_steps > 1) {
      step.accumulation = {.steps = config_.accumulation_steps,
                           .phase_number = num_accumulating_phases_,
                           .role = BatchRole::kEarlier};
      StableHloStep built =
          BuildStableHloStep(own_input->specs(), step_fn, step);
      step.accumulation.role = BatchRole::kLast;
      if (built.accumulates) {
        ++num_accumulating_phases_;
        batches_per_update = config_.accumulation_steps;
        earlier.emplace(Compile(*own_input, std::move(built)));
      } else {
        step.accumulation = {};
      }
    }
    StableHloStep built = BuildStableHloStep(own_input->specs(), step_fn, step);
    compiled.push_back({.last = Compile(*own_input, std::move(built)),
                        .earlier = std::move(earlier)});
  }
  return std::make_unique<PjrtStep>(own_input, batches_per_update,
                                    std::move(compiled));
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
