// replicant._render: the basis of python/replicant/render.py.
#include <mujoco/mujoco.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "python/src/module.h"
#include "python/src/scene_renderer.h"

namespace nb = nanobind;
using nb::literals::operator""_a;
using replicant::python::Output;
using replicant::python::SceneRenderer;

NB_MODULE(_render, module) {
  replicant::python::SetUpModule();
  module.attr("MUJOCO_VERSION") = mjVERSION_HEADER;
  nb::enum_<Output>(module, "Output")
      .value("COLOR", Output::kColor)
      .value("DEPTH", Output::kDepth)
      .value("SEGMENTATION", Output::kSegmentation);
  nb::class_<SceneRenderer>(module, "SceneRenderer",
                            nb::is_weak_referenceable())
      .def(nb::init<const nb::object&, bool, const SceneRenderer*>(), "model"_a,
           "is_known"_a, "like"_a.none())
      .def("render", &SceneRenderer::Render, "model"_a, "scene"_a, "output"_a,
           "height"_a, "width"_a, "out"_a.noconvert())
      .def("reload_assets", &SceneRenderer::ReloadAssets, "model"_a);
  module.def(
      "render_batch",
      [](const std::vector<SceneRenderer*>& renderers, const nb::list& models,
         const nb::list& datas, const std::vector<int>& cameras, Output output,
         int height, int width, const nb::object& option, int num_threads,
         const replicant::python::OutputArray& out) {
        std::vector<SceneRenderer::View> views;
        for (size_t i = 0; i < renderers.size(); ++i) {
          views.push_back({renderers[i], &replicant::python::ModelAt(models[i]),
                           &replicant::python::DataAt(datas[i]), cameras[i]});
        }
        SceneRenderer::RenderBatch(
            views, output, height, width,
            option.is_none() ? nullptr : &replicant::python::OptionAt(option),
            num_threads, out);
      },
      "renderers"_a, "models"_a, "datas"_a, "cameras"_a, "output"_a, "height"_a,
      "width"_a, "option"_a.none(), "num_threads"_a, "out"_a.noconvert());
}
