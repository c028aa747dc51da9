#include "actors/policy_runner.h"

#include "engine/runtime/parameters.h"

namespace replicant::actors {
namespace {

runtime::Executor Compile(const agents::Agent& agent,
                          const agents::TaskSpec& task,
                          const PolicyRunnerOptions& options,
                          runtime::VariableStore& variables) {
  graph::Graph graph(options.seed);
  const graph::Output action =
      agent.BuildPolicy(graph, task,
                        {.num_environments = options.num_environments,
                         .has_noise = options.has_noise,
                         .is_evaluated = options.is_evaluated,
                         .first_environment = options.first_environment});
  return {graph, {.outputs = {action}, .updates = {}}, variables};
}

}  // namespace

PolicyRunner::PolicyRunner(const agents::Agent& agent,
                           const agents::TaskSpec& task,
                           const PolicyRunnerOptions& options)
    : backend_(kernels::MakeBackend(options.backend,
                                    {.num_threads = options.threads})),
      variables_(*backend_, options.seed),
      plan_(Compile(agent, task, options, variables_)),
      observations_(plan_.input("observation")) {
  if (task.state_size > 0) states_ = plan_.input("state").Span<float>();
  if (options.has_noise) {
    noise_scales_ = plan_.input("noise_scale").Span<float>();
    step_ = plan_.input("step").Span<int64_t>().data();
  }
}

void PolicyRunner::SetParameters(std::span<const std::byte> bytes,
                                 const std::string& where) {
  runtime::SetVariables(bytes, where, variables_);
}

TensorView PolicyRunner::Act(int64_t step) {
  if (step_ != nullptr) *step_ = step;
  plan_.Run();
  return plan_.output(0);
}

}  // namespace replicant::actors
