// replicant._envs: the basis of the faces in python/replicant/envs.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "env/tasks/suite.h"
#include "env/video_writer.h"
#include "python/src/environment_batch.h"
#include "python/src/module.h"
#include "python/src/physics_binding.h"
#include "python/src/python_task.h"

namespace replicant::python {
namespace nb = nanobind;
using nb::literals::operator""_a;
namespace {

void BindTask(nb::module_& module) {
  nb::class_<PythonTaskDefinition>(module, "TaskDefinition");
  module.def(
      "define_task",
      [](const std::string& name, const std::string& mjcf,
         const std::string& mjcf_text, nb::object reward,
         nb::object observation, nb::object termination, nb::object initialize,
         double control_timestep_s, double time_limit_s) {
        return DefinePythonTask(name, mjcf, mjcf_text,
                                {.time_limit_s = time_limit_s,
                                 .control_timestep_s = control_timestep_s},
                                {.reward = std::move(reward),
                                 .observation = std::move(observation),
                                 .termination = std::move(termination),
                                 .initialize = std::move(initialize)});
      },
      "name"_a, "mjcf"_a, "mjcf_text"_a, "reward"_a, "observation"_a.none(),
      "termination"_a.none(), "initialize"_a.none(), "control_timestep_s"_a,
      "time_limit_s"_a);
  module.def(
      "tasks",
      [] {
        std::vector<std::string> names;
        for (const env::TaskDefinition& task : env::SuiteTasks()) {
          names.push_back(task.name);
        }
        return names;
      },
      "Names of the Control Suite's 51 tasks.");
}

env::CameraOptions CameraOf(const std::string& camera, int height, int width,
                            const std::string& renderer) {
  return {.camera = camera,
          .height = height,
          .width = width,
          .renderer = {.kind = env::ParseRendererKind(renderer)}};
}

// The arrays of an observation as (name, shape, is_pixels).
nb::list ArraysOf(const EnvironmentBatch& batch) {
  nb::list arrays;
  for (const env::ArraySpec& array : batch.observation_arrays()) {
    nb::list shape;
    for (const int64_t side : array.shape.dims()) shape.append(side);
    arrays.append(nb::make_tuple(array.name, nb::tuple(shape),
                                 array.dtype == DType::kU8));
  }
  return arrays;
}

// The traversal for Python's garbage collector: a task's functions often refer
// to an object that owns the environments.
int VisitBatch(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* batch = nb::inst_ptr<EnvironmentBatch>(self);
  if (TaskFunctions* functions = batch->task_functions()) {
    Py_VISIT(functions->reward.ptr());
    Py_VISIT(functions->observation.ptr());
    Py_VISIT(functions->termination.ptr());
    Py_VISIT(functions->initialize.ptr());
  }
  return 0;
}

int ClearBatch(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  const auto* batch = nb::inst_ptr<EnvironmentBatch>(self);
  if (TaskFunctions* functions = batch->task_functions()) {
    *functions = {nb::none(), nb::none(), nb::none(), nb::none()};
  }
  return 0;
}

PyType_Slot batch_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(VisitBatch)},
    {Py_tp_clear, reinterpret_cast<void*>(ClearBatch)},
    {0, nullptr},
};

void BindBatch(nb::module_& module) {
  nb::class_<env::TaskConfig>(module, "TaskConfig")
      .def(nb::init<>())
      .def_rw("name", &env::TaskConfig::name)
      .def_rw("mjcf", &env::TaskConfig::mjcf)
      .def_rw("suite_folder", &env::TaskConfig::suite_folder)
      .def_rw("observations", &env::TaskConfig::observations)
      .def_rw("action_repeat", &env::TaskConfig::action_repeat)
      .def("set_reward_sum",
           [](env::TaskConfig& c, bool is_sum) {
             c.action_repeat_reward = is_sum ? env::RewardReduction::kSum
                                             : env::RewardReduction::kMean;
           })
      // of set_pixels() and of EnvironmentBatch.render()
      .def("set_gl",
           [](env::TaskConfig& c, const std::string& platform, int egl_device) {
             env::RendererOptions& shared = c.pixels.camera.renderer;
             shared.gl_platform = env::ParseGlPlatform(platform);
             shared.egl_device = egl_device;
           })
      .def("set_pixels",
           [](env::TaskConfig& c, const std::vector<std::string>& cameras,
              const std::vector<std::pair<int, int>>& sizes,
              const std::string& renderer, int frame_stack) {
             c.has_pixels = true;
             c.pixels.cameras.clear();
             const env::RendererOptions& shared = c.pixels.camera.renderer;
             for (size_t i = 0; i < cameras.size(); ++i) {
               const auto [height, width] = sizes.at(i);
               env::CameraOptions& camera = c.pixels.cameras.emplace_back(
                   CameraOf(cameras[i], height, width, renderer));
               camera.renderer.gl_platform = shared.gl_platform;
               camera.renderer.egl_device = shared.egl_device;
             }
             c.pixels.frame_stack = frame_stack;
           });

  nb::class_<EnvironmentBatch>(module, "EnvironmentBatch",
                               nb::type_slots(batch_slots),
                               nb::is_weak_referenceable())
      .def(
          "__init__",
          [](EnvironmentBatch* self, const env::TaskConfig& task,
             const std::optional<PythonTaskDefinition>& own_task,
             int64_t num_envs, int64_t first_index, int threads, bool has_state,
             bool is_flat, int autoreset,
             const EnvironmentBatch::Seeds& seeds) {
            new (self) EnvironmentBatch(
                {.task = task,
                 .own_task = own_task,
                 .num_environments = num_envs,
                 .first_index = first_index,
                 .threads = threads,
                 .has_state = has_state,
                 .is_flat = is_flat,
                 .autoreset = static_cast<AutoresetMode>(autoreset)},
                seeds);
          },
          "task"_a, "own_task"_a.none(), "num_envs"_a, "first_index"_a,
          "threads"_a, "has_state"_a, "is_flat"_a, "autoreset"_a, "seeds"_a)
      .def("seed", &EnvironmentBatch::Seed, "seeds"_a)
      .def("reset", &EnvironmentBatch::Reset, "mask"_a.none() = nb::none())
      .def("step", &EnvironmentBatch::Step, "actions"_a)
      .def("dm_reset", &EnvironmentBatch::DmReset)
      .def("dm_step", &EnvironmentBatch::DmStep, "actions"_a)
      .def("send", &EnvironmentBatch::Send, "actions"_a, "ids"_a)
      .def("recv", &EnvironmentBatch::Receive, "count"_a)
      .def(
          "render",
          [](EnvironmentBatch& self, int id, const std::string& camera,
             int height, int width, const std::string& renderer) {
            return self.Render(id, CameraOf(camera, height, width, renderer));
          },
          "id"_a, "camera"_a, "height"_a, "width"_a, "renderer"_a)
      .def("finish", &EnvironmentBatch::Finish)
      .def_prop_ro("num_under_way", &EnvironmentBatch::num_under_way)
      .def_prop_ro("observation_arrays", &ArraysOf)
      .def_prop_ro(
          "action_minimum",
          [](const EnvironmentBatch& b) { return b.action_spec().minimum; })
      .def_prop_ro(
          "action_maximum",
          [](const EnvironmentBatch& b) { return b.action_spec().maximum; })
      .def_prop_ro("control_timestep_s", &EnvironmentBatch::control_timestep_s)
      .def_prop_ro("counters", [](const EnvironmentBatch& b) {
        const env::EnvironmentCounters counters = b.counters();
        nb::dict all;
        all["episodes"] = counters.episodes;
        all["steps"] = counters.steps;
        all["divergences"] = counters.divergences;
        return all;
      });
}

void BindVideo(nb::module_& module) {
  using Frame = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;
  nb::class_<env::VideoWriter>(
      module, "VideoWriter",
      "Writes frames, uint8 [height, width, 3], into an MP4 by the program "
      "ffmpeg.")
      .def(
          "__init__",
          [](env::VideoWriter* self, const std::filesystem::path& file,
             int height, int width, double frames_per_second) {
            new (self) env::VideoWriter(file, height, width, frames_per_second);
          },
          "file"_a, "height"_a, "width"_a, "frames_per_second"_a)
      .def(
          "write",
          [](env::VideoWriter& writer, const nb::object& frame) {
            const nb::module_ numpy = nb::module_::import_("numpy");
            const nb::object array = numpy.attr("ascontiguousarray")(frame);
            const nb::object dtype = array.attr("dtype");
            const nb::object shape = array.attr("shape");
            const nb::object wanted =
                nb::make_tuple(writer.height(), writer.width(), 3);
            if (!dtype.equal(numpy.attr("uint8")) || !shape.equal(wanted)) {
              throw InvalidArgument(
                  fmt::format("video: got a frame of {} {}, want uint8 {}",
                              nb::str(dtype).c_str(), nb::str(shape).c_str(),
                              nb::str(wanted).c_str()));
            }
            const auto bytes = nb::cast<Frame>(array, /*convert=*/false);
            GilRelease release;
            writer.Write({bytes.data(), bytes.size()});
          },
          "frame"_a)
      .def("finish", &env::VideoWriter::Finish, nb::call_guard<GilRelease>());
}

}  // namespace
}  // namespace replicant::python

NB_MODULE(_envs, module) {
  using namespace replicant::python;
  SetUpModule();
  BindPhysics(module);
  BindTask(module);
  BindBatch(module);
  BindVideo(module);
}
