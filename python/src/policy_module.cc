// replicant._policy: the basis of replicant.Policy.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "actors/policy_runner.h"
#include "agents/d4pg/agent.h"
#include "agents/task_spec.h"
#include "base/config/document.h"
#include "base/config/reader.h"
#include "base/error.h"
#include "engine/runtime/checkpoint.h"
#include "env/tasks/suite.h"
#include "python/src/module.h"
#include "python/src/python_environment.h"

namespace replicant::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

// The sections of a run's config.yaml that a policy needs. The run has already
// checked the others.
struct PolicyConfig {
  env::TaskConfig task;
  agents::d4pg::D4pgConfig agent;
  std::string workload = "d4pg";

  static PolicyConfig FromFile(const std::string& file,
                               const std::string& suite_folder) {
    config::Document document = config::Document::FromFile(file);
    // a run's copy of its model lies in the run's folder
    env::TaskConfig::MakePathsAbsolute(document);
    config::Reader reader(std::move(document));
    PolicyConfig c;
    reader.Section("task", &c.task, "the environment");
    reader.Section("agent", &c.agent, "the agent");
    config::Reader learner = reader.Section("learner", "the learner");
    learner.Field("workload", &c.workload, "what is trained");
    if (c.workload != "d4pg") {
      throw ConfigError(fmt::format(
          "{}: learner.workload is '{}'; only a run of 'd4pg' has a "
          "policy that Python can load",
          file, c.workload));
    }
    c.FindSuite(suite_folder);
    return c;
  }

 private:
  // A run in containers has their folder, whose models are the installed ones.
  void FindSuite(const std::string& installed) {
    std::string& folder = task.suite_folder;
    std::error_code ignored;
    if (std::filesystem::is_directory(folder, ignored)) return;
    if (!folder.empty() && task.mjcf.empty()) {
      const std::string warning = fmt::format(
          "policy: no folder {}, the run's task.suite_folder; the models of {} "
          "take its place",
          folder, installed);
      if (PyErr_WarnEx(PyExc_UserWarning, warning.c_str(), /*stack_level=*/2) !=
          0) {
        nb::raise_python_error();
      }
    }
    folder = installed;
  }
};

// A trained policy for batches of any size; a size that is new compiles a plan.
//
// Thread-safety: one thread at a time; a call while another one is under way
// throws Error.
class Policy {
 public:
  // `own_task` is the name of the task that `make_adapter` makes
  // (python/src/python_environment.h), unless that is None. `seed` is of the
  // noise.
  Policy(const std::string& config_file, const std::string& checkpoint,
         const std::string& suite_folder, int threads, uint64_t seed,
         const std::string& own_task, const nb::object& make_adapter)
      : config_(PolicyConfig::FromFile(config_file, suite_folder)),
        checkpoint_(checkpoint),
        threads_(threads),
        seed_(seed),
        agent_(agents::d4pg::MakeAgent(config_.agent)),
        task_(TaskOf(config_.task, own_task, make_adapter)) {
    GilRelease release;
    RunnerFor(1);
  }
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  template <typename T>
  using Elements = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

  // `observations` are the elements of a batch of the task's type, `states` the
  // elements of the states in addition to pixels; returns actions in the task's
  // range, f64 [rows, A].
  template <typename T>
  nb::object Act(const Elements<T>& observations, const Elements<float>& states,
                 int64_t rows, double noise_scale) {
    if (getpid() != process_) {
      throw Error(
          fmt::format("this policy was loaded in process {}, and this is its "
                      "fork {}; hint: load it in the child",
                      process_, getpid()));
    }
    const ExclusiveCall call(&is_busy_, "this policy");
    const nb::object actions = nb::module_::import_("numpy").attr("empty")(
        nb::make_tuple(rows, task_.action_size()), "float64");
    const auto out = nb::cast<nb::ndarray<double, nb::c_contig>>(actions);
    GilRelease release;
    actors::PolicyRunner& runner = RunnerFor(rows);
    Copy("an observation", observations, rows, runner.observations().Span<T>());
    Copy("a state", states, rows, runner.states());
    std::fill(runner.noise_scales().begin(), runner.noise_scales().end(),
              static_cast<float>(noise_scale));
    const TensorView chosen = runner.Act(num_calls_++);
    const auto size = static_cast<size_t>(task_.action_size());
    const std::span<const float> all = chosen.Span<float>();
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      task_.ToTaskRange(all.subspan(row * size, size),
                        {out.data() + row * size, size});
    }
    return actions;
  }

  int64_t step() const { return info_.step; }
  const agents::TaskSpec& task() const { return task_; }
  const PolicyConfig& config() const { return config_; }

 private:
  template <typename T>
  static void Copy(const char* what, const Elements<T>& from, int64_t rows,
                   std::span<T> to) {
    if (to.size() != from.size()) {
      throw InvalidArgument(
          fmt::format("policy: {} has {} elements, expected {}", what,
                      from.size() / static_cast<size_t>(rows),
                      to.size() / static_cast<size_t>(rows)));
    }
    std::copy_n(from.data(), from.size(), to.begin());
  }

  static agents::TaskSpec TaskOf(const env::TaskConfig& config,
                                 const std::string& own_task,
                                 const nb::object& make_adapter) {
    env::TaskRegistry registry(env::SuiteTasks());
    if (!make_adapter.is_none()) {
      registry.Add(DefinePythonEnvironment(own_task, make_adapter));
    }
    GilRelease release;
    return agents::MakeTaskSpec(config, registry);
  }

  actors::PolicyRunner& RunnerFor(int64_t rows) {
    std::unique_ptr<actors::PolicyRunner>& runner = runners_[rows];
    if (runner == nullptr) {
      auto made = std::make_unique<actors::PolicyRunner>(
          *agent_, task_,
          actors::PolicyRunnerOptions{.threads = threads_,
                                      .num_environments = rows,
                                      .is_evaluated = true,
                                      .seed = seed_});
      info_ = runtime::LoadPartOfCheckpoint(checkpoint_, made->variables());
      runner = std::move(made);
    }
    return *runner;
  }

  const pid_t process_ = getpid();
  const PolicyConfig config_;
  const std::filesystem::path checkpoint_;
  const int threads_;
  const uint64_t seed_;
  const std::shared_ptr<const agents::Agent> agent_;
  const agents::TaskSpec task_;
  // by number of rows
  std::map<int64_t, std::unique_ptr<actors::PolicyRunner>> runners_;
  runtime::CheckpointInfo info_;
  int64_t num_calls_ = 0;
  bool is_busy_ = false;
};

// Keys of the run's task that replicant.envs.make_vec() cannot give.
std::vector<std::string> KeysLeftOut(const env::TaskConfig& task) {
  std::vector<std::string> keys;
  if (!task.randomization.empty()) keys.emplace_back("task.randomization");
  if (task.disturbances.IsAny()) keys.emplace_back("task.disturbances");
  if (task.distractions.IsAny()) keys.emplace_back("task.distractions");
  return keys;
}

// The keywords of replicant.envs.make_vec() for the policy's environment.
nb::dict EnvironmentOf(const PolicyConfig& config) {
  nb::dict options;
  options["task"] = config.task.name;
  options["suite_folder"] = config.task.suite_folder;
  if (!config.task.mjcf.empty()) options["mjcf"] = config.task.mjcf;
  options["action_repeat"] = config.task.action_repeat;
  options["observations"] = nb::cast(config.task.observations);
  // of all cameras
  const env::RendererOptions& renderer = config.task.pixels.camera.renderer;
  options["gl_platform"] = std::string(env::ToString(renderer.gl_platform));
  options["egl_device"] = renderer.egl_device;
  if (config.task.has_pixels) {
    const auto cameras = config.task.pixels.Cameras();
    nb::list sizes, names;
    for (const env::CameraOptions& camera : cameras) {
      sizes.append(nb::make_tuple(camera.height, camera.width));
      names.append(camera.camera);
    }
    const bool is_one = cameras.size() == 1;
    options["pixels"] = is_one ? nb::object(sizes[0]) : sizes;
    options["state"] = config.task.has_state_beside_pixels;
    options["camera"] = is_one ? nb::object(names[0]) : names;
    options["renderer"] = std::string(env::ToString(renderer.kind));
    options["frame_stack"] = config.task.pixels.frame_stack;
  }
  return options;
}

}  // namespace
}  // namespace replicant::python

NB_MODULE(_policy, module) {
  using namespace replicant::python;
  SetUpModule();
  nb::class_<Policy>(module, "Policy")
      .def(nb::init<const std::string&, const std::string&, const std::string&,
                    int, uint64_t, const std::string&, const nb::object&>(),
           "config_file"_a, "checkpoint"_a, "suite_folder"_a, "threads"_a,
           "seed"_a, "own_task"_a, "make_adapter"_a.none())
      .def("act_pixels", &Policy::Act<uint8_t>, "observations"_a, "states"_a,
           "rows"_a, "noise_scale"_a)
      .def("act_state", &Policy::Act<float>, "observations"_a, "states"_a,
           "rows"_a, "noise_scale"_a)
      .def_prop_ro("step", &Policy::step)
      .def_prop_ro("has_pixels",
                   [](const Policy& p) { return p.task().has_pixels; })
      .def_prop_ro("images",
                   [](const Policy& p) {
                     nb::dict shapes;
                     for (const replicant::agents::ImageSpec& image :
                          p.task().AllImages()) {
                       nb::list shape;
                       for (const int64_t side : image.shape.dims()) {
                         shape.append(side);
                       }
                       shapes[image.name.c_str()] = nb::tuple(shape);
                     }
                     return shapes;
                   })
      .def_prop_ro("frame_stack",
                   [](const Policy& p) { return p.task().frame_stack; })
      .def_prop_ro("state_size",
                   [](const Policy& p) { return p.task().state_size; })
      .def_prop_ro("observation_shape",
                   [](const Policy& p) {
                     nb::list shape;
                     for (const int64_t side : p.task().observation.dims()) {
                       shape.append(side);
                     }
                     return nb::tuple(shape);
                   })
      .def_prop_ro("left_out",
                   [](const Policy& p) { return KeysLeftOut(p.config().task); })
      .def_prop_ro("environment",
                   [](const Policy& p) { return EnvironmentOf(p.config()); });
}
