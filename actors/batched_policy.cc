#include "actors/batched_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace replicant::actors {

BatchedPolicy::BatchedPolicy(const agents::Agent& agent,
                             const agents::TaskSpec& task,
                             const PolicyRunnerOptions& options,
                             int64_t max_rows, int64_t first_run)
    : state_size_(task.state_size),
      action_size_(task.action_size()),
      next_run_(first_run) {
  if (max_rows < 1) {
    throw InvalidArgument(
        fmt::format("BatchedPolicy: max_rows must be >= 1, got {}", max_rows));
  }
  for (int64_t rows = 1;; rows = std::min(2 * rows, max_rows)) {
    PolicyRunnerOptions of_plan = options;
    of_plan.num_environments = rows;
    of_plan.first_environment = 0;
    plans_.push_back(
        {rows, std::make_unique<PolicyRunner>(agent, task, of_plan)});
    if (rows == max_rows) break;
  }
  observation_bytes_ =
      static_cast<int64_t>(plans_[0].runner->observations().bytes().size());
}

void BatchedPolicy::SetParameters(std::span<const std::byte> bytes,
                                  const std::string& where) {
  for (const Plan& plan : plans_) plan.runner->SetParameters(bytes, where);
}

void BatchedPolicy::Act(std::span<const Rows> all) {
  std::vector<Row> rows;
  const auto row_bytes = static_cast<size_t>(observation_bytes_);
  const auto row_numbers = static_cast<size_t>(state_size_);
  const auto row_actions = static_cast<size_t>(action_size_);
  for (const Rows& one : all) {
    for (size_t i = 0; i < one.noise_scales.size(); ++i) {
      rows.push_back(
          {.observation = one.observations.subspan(i * row_bytes, row_bytes),
           .state = one.states.subspan(i * row_numbers, row_numbers),
           .noise_scale = one.noise_scales[i],
           .action = one.actions.subspan(i * row_actions, row_actions)});
    }
  }
  const auto most = static_cast<size_t>(plans_.back().num_rows);
  for (size_t begin = 0; begin < rows.size(); begin += most) {
    Run(std::span(rows).subspan(begin, std::min(most, rows.size() - begin)));
  }
}

void BatchedPolicy::Run(std::span<const Row> rows) {
  const auto plan = std::ranges::find_if(plans_, [&](const Plan& one) {
    return one.num_rows >= static_cast<int64_t>(rows.size());
  });
  PolicyRunner& runner = *plan->runner;
  const std::span<std::byte> observations = runner.observations().bytes();
  const std::span<float> states = runner.states();
  const std::span<float> scales = runner.noise_scales();
  const auto row_bytes = static_cast<size_t>(observation_bytes_);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(observations.data() + i * row_bytes, rows[i].observation.data(),
                row_bytes);
    std::ranges::copy(
        rows[i].state,
        states.begin() + static_cast<std::ptrdiff_t>(i * rows[i].state.size()));
    if (!scales.empty()) scales[i] = rows[i].noise_scale;
  }
  // rows beyond keep old values: their actions are not read
  const auto actions = runner.Act(next_run_++).Span<float>();
  for (size_t i = 0; i < rows.size(); ++i) {
    std::copy_n(actions.begin() +
                    static_cast<std::ptrdiff_t>(i * rows[i].action.size()),
                rows[i].action.size(), rows[i].action.begin());
  }
  num_computed_rows_ += plan->num_rows;
}

}  // namespace replicant::actors
