// Measures how many steps a second the environments make; one JSON line per
// case. A step is what the agent sees as one: `action_repeat` control steps and
// at most one picture. bench/run/env compares it with EnvPool and dm_control.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/metrics/json_lines.h"
#include "base/rng.h"
#include "bench/programs/process_cost.h"
#include "env/renderer/scene.h"
#include "env/task_config.h"
#include "env/tasks/suite.h"
#include "env/vector_environment.h"

namespace replicant::env {
namespace {

struct Case {
  std::string task;
  int action_repeat = 1;
  // 1: all in the calling thread
  int threads = 1;
  // 0: the state is observed, not pixels
  int pixels_side = 0;
  RendererKind renderer = RendererKind::kRaycast;

  std::string Name() const {
    if (pixels_side == 0) {
      return fmt::format("env/{}/state/repeat-{}/threads-{}", task,
                         action_repeat, threads);
    }
    return fmt::format("env/{}/pixels-{}/repeat-{}/{}/threads-{}", task,
                       pixels_side, action_repeat, ToString(renderer), threads);
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
    for (const int threads : {2, 8}) {
      cases.push_back({.task = task, .threads = threads});
    }
    Case pixels{.task = task, .action_repeat = 2, .pixels_side = 84};
    for (const int threads : {1, 2, 8}) {
      pixels.threads = threads;
      cases.push_back(pixels);
    }
    pixels.threads = 1;
    pixels.pixels_side = 64;
    cases.push_back(pixels);
    pixels.pixels_side = 84;
    pixels.renderer = RendererKind::kGl;
    cases.push_back(pixels);
  }
  for (const char* task : {"reacher-easy", "finger-spin", "hopper-stand",
                           "ball_in_cup-catch", "quadruped-escape"}) {
    cases.push_back({.task = task, .action_repeat = 2, .pixels_side = 84});
  }
  return cases;
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
  const double cpu_start = ProcessorSeconds();
  const Clock::time_point start = Clock::now();
  while (timing.wall_s < seconds) {
    step();
    ++timing.calls;
    timing.wall_s = std::chrono::duration<double>(Clock::now() - start).count();
  }
  timing.cpu_s = ProcessorSeconds() - cpu_start;
  return timing;
}

std::vector<double> RandomActions(const ActionSpec& spec, size_t rows) {
  RandomStream random(/*seed=*/0, "bench-actions");
  const size_t size = spec.minimum.size();
  std::vector<double> actions(rows * size);
  for (size_t row = 0; row < rows; ++row) {
    DrawAction(spec, random, std::span(actions).subspan(row * size, size));
  }
  return actions;
}

// CPU microseconds of the parts of one step of one environment: the same
// actions, without observation, reward and the ends of episodes.
struct Stages {
  double physics_us = 0.0;
  // of pixels: MuJoCo's list of geoms, the picture from it, the frame stack
  double scene_us = 0.0;
  double render_us = 0.0;
  double stack_us = 0.0;
};

Stages MeasureStages(const Case& c, const TaskDefinition& task,
                     const TaskConfig& config, double seconds) {
  const auto environment = MakeEnvironment(task, {});
  environment->Reset({});
  Physics& physics = environment->mutable_physics();
  const std::vector<double> actions =
      RandomActions(environment->action_spec(), kActionRows);
  const size_t size = environment->action_spec().minimum.size();
  const CameraOptions& camera_options = config.pixels.camera;
  const int camera_id = FindCamera(physics, camera_options.camera);
  Scene scene(physics.model());
  std::unique_ptr<Camera> camera;
  if (c.pixels_side > 0) {
    camera = std::make_unique<Camera>(physics, camera_options);
  }
  FrameStack stack(int64_t{camera_options.height} * camera_options.width,
                   config.pixels.frame_stack);
  std::vector<uint8_t> stacked(static_cast<size_t>(config.pixels.frame_stack) *
                               stack.frame().size());

  Stages sum;
  size_t row = 0;
  double time = 0.0;
  // adds the time since the last call
  const auto lap = [&time](double* stage) {
    const double now = ProcessorSeconds();
    *stage += 1e6 * (now - time);
    time = now;
  };
  const Timing timing = TimeFor(seconds, [&] {
    time = ProcessorSeconds();
    std::copy_n(actions.begin() + static_cast<std::ptrdiff_t>(row * size), size,
                physics.mutable_ctrl().begin());
    row = (row + 1) % kActionRows;
    for (int i = 0; i < c.action_repeat; ++i) {
      if (physics.Step(environment->physics_steps_per_action()) !=
          PhysicsStatus::kOk) {
        physics.Reset();
      }
    }
    lap(&sum.physics_us);
    if (camera == nullptr) return;
    scene.Update(physics.model(), physics.mutable_data(), camera_id);
    lap(&sum.scene_us);
    camera->Render(physics, stack.frame());
    lap(&sum.render_us);
    stack.Push();
    stack.CopyTo(stacked);
    lap(&sum.stack_us);
  });
  const auto calls = static_cast<double>(timing.calls);
  // the camera lists the geoms itself
  return {.physics_us = sum.physics_us / calls,
          .scene_us = sum.scene_us / calls,
          .render_us = (sum.render_us - sum.scene_us) / calls,
          .stack_us = sum.stack_us / calls};
}

void RunCase(const Case& c, const TaskRegistry& registry, double seconds) {
  const TaskDefinition& task = registry.Find(c.task);
  TaskConfig config{.name = c.task,
                    .action_repeat = c.action_repeat,
                    .has_pixels = c.pixels_side > 0};
  if (c.pixels_side > 0) {
    config.pixels.camera.height = c.pixels_side;
    config.pixels.camera.width = c.pixels_side;
    config.pixels.camera.renderer.kind = c.renderer;
  }
  VectorEnvironment batch(
      MakeConfiguredEnvironments(registry, config,
                                 /*seed=*/0,
                                 /*first_index=*/0, kEnvironments),
      {.threads = c.threads == 1 ? 0 : c.threads});

  const std::vector<double> actions =
      RandomActions(batch.action_spec(), kActionRows * kEnvironments);
  const size_t row_size = actions.size() / kActionRows;
  const ObservationSpec& spec = batch.observation_spec();
  std::vector<double> state;
  std::vector<uint8_t> pixels;
  if (c.pixels_side > 0) {
    pixels.resize(static_cast<size_t>(kEnvironments * spec.pixels_size()));
  } else {
    state.resize(static_cast<size_t>(kEnvironments * spec.state_size()));
  }
  std::vector<TimeStep> steps(kEnvironments);
  const BatchBuffer out{.state = state, .pixels = pixels, .steps = steps};
  batch.Reset(out);
  size_t row = 0;
  const auto step = [&] {
    batch.Step(std::span(actions).subspan(row * row_size, row_size), out);
    row = (row + 1) % kActionRows;
  };
  TimeFor(seconds / 10, step);  // caches and clocks warm
  const Timing timing = TimeFor(seconds, step);
  const Stages stages = MeasureStages(c, task, config, seconds / 4);

  const double calls = static_cast<double>(timing.calls) * kEnvironments;
  metrics::JsonObject line;
  line.Add("name", c.Name())
      .Add("value", calls / timing.wall_s)
      .Add("unit", "env-steps/s")
      .Add("task", c.task)
      .Add("observation", c.pixels_side > 0 ? "pixels" : "state")
      .Add("action_repeat", c.action_repeat)
      .Add("environments", kEnvironments)
      .Add("threads", c.threads)
      .Add("per_cpu_second", calls / timing.cpu_s)
      .Add("cpu_us", 1e6 * timing.cpu_s / calls)
      .Add("physics_us", stages.physics_us);
  if (c.pixels_side > 0) {
    line.Add("renderer", std::string(ToString(c.renderer)))
        .Add("height", c.pixels_side)
        .Add("width", c.pixels_side)
        .Add("scene_us", stages.scene_us)
        .Add("render_us", stages.render_us)
        .Add("stack_us", stages.stack_us);
  }
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
