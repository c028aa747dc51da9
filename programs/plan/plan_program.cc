#include "programs/plan/plan_program.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "engine/kernels/cuda_backend.h"
#include "programs/plan/plan_text.h"
#include "programs/run/make_workload.h"

namespace replicant::programs {
namespace {

struct PlanOptions {
  std::string device = "h100";
  bool lists_all = false;
};

int Print(const Invocation& invocation, const PlanOptions& options) {
  const DeviceRates* device = nullptr;
  if (options.device == "h100" || options.device == "cuda") device = &kH100;
  if (options.device == "h200") device = &kH200;
  if (device == nullptr) {
    throw ConfigError(
        fmt::format("--device {}: want h100 or h200", options.device));
  }
  const learner::LearnerConfig& learner = invocation.config().learner;
  fmt::print("{}: one of {} replicas, batch {} of all\n", learner.workload,
             learner.replication.replicas, learner.batch_size);
  for (const replicator::StepPlan& plan : PlansOf(invocation)) {
    fmt::print("\n{}", PlanText(plan, options.lists_all, *device));
  }
  return 0;
}

}  // namespace

std::vector<replicator::StepPlan> PlansOf(const Invocation& invocation) {
  return PlansOf(invocation, [](std::string_view /*name*/,
                                const kernels::BackendOptions& /*options*/) {
    return kernels::MakeDescribedCudaBackend();
  });
}

std::vector<replicator::StepPlan> PlansOf(
    const Invocation& invocation, const kernels::BackendFactory& make_backend) {
  const RunConfig& config = invocation.config();
  replicator::PlanReplicator planner = replicator::MakePlanReplicator(
      config.learner.replication, static_cast<uint64_t>(config.run.seed),
      make_backend);
  const std::vector<replicator::StepPlan>* const plans = planner.plans;
  // owns the replicator
  const auto workload =
      MakeWorkload(invocation, std::move(planner.replicator),
                   /*source=*/nullptr, /*reads_images=*/false);
  return *plans;
}

Program PlanProgram() {
  const auto options = std::make_shared<PlanOptions>();
  return {.name = "plan",
          .about =
              "Prints the plan of a training step on a device, which need not "
              "exist: launches, bytes, FLOPs, memory and a lower bound of the "
              "time.",
          .add_options =
              [options](config::CommandLine& command_line) {
                command_line.AddOption(
                    "--device", &options->device,
                    "device to plan for: h100 or h200, in SXM's form");
                command_line.AddFlag("--kernels", &options->lists_all,
                                     "print every kernel, in the order of "
                                     "launches");
              },
          .run =
              [options](const Invocation& invocation) {
                return Print(invocation, *options);
              }};
}

}  // namespace replicant::programs
