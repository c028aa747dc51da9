// Measures how many control steps a second the environments make; one JSON line
// per case. scripts/bench/env runs it beside EnvPool and dm_control.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/base/rng.h"
#include "core/metrics/json_lines.h"
#include "env/task_registry.h"
#include "env/tasks/suite.h"
#include "env/vector_environment.h"
#include "env/wrappers.h"

namespace replicant::env {
namespace {

struct Case {
  std::string task;
  int action_repeat = 1;
  // 1: all in the calling thread
  int threads = 1;

  std::string Name() const {
    return fmt::format("env/{}/state/repeat-{}/threads-{}", task, action_repeat,
                       threads);
  }
};

// Environments of a case, as many as EnvPool's examples use.
constexpr int kEnvironments = 16;
// Rows of random actions, used in turn.
constexpr size_t kActionRows = 64;

std::vector<Case> AllCases(const TaskRegistry& registry) {
  std::vector<Case> cases;
  for (const TaskDefinition& task : registry.tasks()) {
    cases.push_back({.task = task.name});
  }
  for (const char* task :
       {"cartpole-swingup", "cheetah-run", "walker-walk", "humanoid-walk"}) {
    cases.push_back({.task = task, .action_repeat = 2});
    cases.push_back({.task = task, .threads = 2});
  }
  return cases;
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Counts calls of `step` for about `seconds`.
struct Timing {
  int64_t calls = 0;
  double wall_s = 0.0;
  double cpu_s = 0.0;
};
template <typename Step>
Timing TimeFor(double seconds, const Step& step) {
  using Clock = std::chrono::steady_clock;
  Timing timing;
  const double cpu_start = CpuSeconds();
  const Clock::time_point start = Clock::now();
  while (timing.wall_s < seconds) {
    step();
    ++timing.calls;
    timing.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
  }
  timing.cpu_s = CpuSeconds() - cpu_start;
  return timing;
}

std::vector<double> RandomActions(const ActionSpec& spec, size_t rows) {
  RandomStream random(/*seed=*/0, "bench-actions");
  std::vector<double> actions;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < spec.minimum.size(); ++i) {
      actions.push_back(random.Uniform(std::max(spec.minimum[i], -1.0),
                                       std::min(spec.maximum[i], 1.0)));
    }
  }
  return actions;
}

// CPU microseconds of the physics alone in one control step: the same actions,
// without observation, reward and the ends of episodes.
double PhysicsMicroseconds(const TaskDefinition& task, const mjModel& model,
                           double seconds) {
  const auto environment = MakeEnvironment(task, {}, model);
  environment->Reset({});
  Physics& physics = environment->mutable_physics();
  const std::vector<double> actions =
      RandomActions(environment->action_spec(), kActionRows);
  const size_t size = environment->action_spec().minimum.size();
  size_t row = 0;
  const Timing timing = TimeFor(seconds, [&] {
    std::copy_n(actions.begin() + static_cast<std::ptrdiff_t>(row * size), size,
                physics.mutable_ctrl().begin());
    row = (row + 1) % kActionRows;
    if (physics.Step(environment->physics_steps_per_action()) !=
        PhysicsStatus::kOk) {
      physics.Reset();
    }
  });
  return 1e6 * timing.cpu_s / static_cast<double>(timing.calls);
}

void RunCase(const Case& c, const TaskRegistry& registry, double seconds) {
  const TaskDefinition& task = registry.Find(c.task);
  const MjModelPtr model = LoadModel(task, {});
  std::vector<std::unique_ptr<Environment>> environments;
  for (int i = 0; i < kEnvironments; ++i) {
    std::unique_ptr<Environment> one =
        MakeEnvironment(task, {.seed = 0, .index = i}, *model);
    if (c.action_repeat > 1) {
      one = std::make_unique<ActionRepeat>(std::move(one), c.action_repeat,
                                           RewardReduction::kMean);
    }
    environments.push_back(std::move(one));
  }
  VectorEnvironment batch(std::move(environments),
                          {.threads = c.threads == 1 ? 0 : c.threads});

  const std::vector<double> actions =
      RandomActions(batch.action_spec(), kActionRows * kEnvironments);
  const size_t row_size = actions.size() / kActionRows;
  std::vector<double> state(static_cast<size_t>(
      kEnvironments * batch.observation_spec().state_size()));
  std::vector<TimeStep> steps(kEnvironments);
  const BatchBuffer out{.state = state, .steps = steps};
  batch.Reset(out);
  size_t row = 0;
  const auto step = [&] {
    batch.Step(std::span(actions).subspan(row * row_size, row_size), out);
    row = (row + 1) % kActionRows;
  };
  TimeFor(seconds / 10, step);  // caches and clocks warm
  const Timing timing = TimeFor(seconds, step);

  const double calls = static_cast<double>(timing.calls) * kEnvironments;
  metrics::JsonObject line;
  line.Add("name", c.Name())
      .Add("value", calls / timing.wall_s)
      .Add("unit", "env-steps/s")
      .Add("task", c.task)
      .Add("observation", "state")
      .Add("action_repeat", c.action_repeat)
      .Add("environments", kEnvironments)
      .Add("threads", c.threads)
      .Add("per_cpu_second", calls / timing.cpu_s)
      .Add("cpu_us", 1e6 * timing.cpu_s / calls)
      .Add("physics_us",
           c.action_repeat * PhysicsMicroseconds(task, *model, seconds / 4));
  fmt::print("{}\n", line.ToString());
  std::fflush(stdout);
}

}  // namespace
}  // namespace replicant::env

int main(int argc, char** argv) {
  try {
    using replicant::env::Case;
    bool list = false;
    std::string filter;
    double seconds = 1.0;
    CLI::App app("Measures the environments.", "bench_env");
    app.add_flag("--list", list, "print the names of all cases");
    app.add_option("--filter", filter, "run only names that contain this");
    app.add_option("--seconds", seconds, "time per case, default 1")
        ->check(CLI::Range(0.001, 3600.0));
    CLI11_PARSE(app, argc, argv);
    replicant::InitLogging({.role = "bench_env"});
    const replicant::env::TaskRegistry registry(replicant::env::SuiteTasks());
    for (const Case& c : replicant::env::AllCases(registry)) {
      const std::string name = c.Name();
      if (name.find(filter) == std::string::npos) continue;
      if (list) {
        fmt::print("{}\n", name);
      } else {
        replicant::env::RunCase(c, registry, seconds);
      }
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_env: %s\n", e.what());
    return 1;
  }
}
