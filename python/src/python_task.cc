#include "python/src/python_task.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "env/task.h"

namespace replicant::python {
namespace nb = nanobind;
namespace {

// The functions, destroyed with the GIL whichever thread drops them.
std::shared_ptr<TaskFunctions> Share(TaskFunctions functions) {
  return {new TaskFunctions(std::move(functions)), [](TaskFunctions* all) {
            nb::gil_scoped_acquire acquire;
            delete all;
          }};
}

class PythonTask : public env::Task {
 public:
  PythonTask(std::string name, std::shared_ptr<const TaskFunctions> functions)
      : name_(std::move(name)), functions_(std::move(functions)) {}

  ~PythonTask() override {
    nb::gil_scoped_acquire acquire;
    if (view_.is_valid()) nb::cast<PhysicsView&>(view_).Detach();
    view_.reset();
  }

  void Bind(env::Physics& physics, RandomStream& /*random*/) override {
    nb::gil_scoped_acquire acquire;
    view_ = nb::cast(PhysicsView(&physics));
  }

  void InitializeEpisode(env::Physics& /*physics*/,
                         RandomStream& random) override {
    nb::gil_scoped_acquire acquire;
    if (functions_->initialize.is_none()) return;
    const nb::object generator =
        nb::module_::import_("numpy.random").attr("default_rng")(random());
    functions_->initialize(view_, generator);
  }

  void Observe(const env::Physics& physics,
               env::ObservationWriter& writer) const override {
    nb::gil_scoped_acquire acquire;
    if (functions_->observation.is_none()) {
      writer.Array("position", physics.qpos());
      writer.Array("velocity", physics.qvel());
      return;
    }
    const nb::object all = functions_->observation(view_);
    nb::dict named;
    if (!nb::try_cast(all, named)) {
      throw InvalidArgument(
          fmt::format("{}: observation() must return a dictionary", name_));
    }
    // all arrays are read before anything is written
    std::vector<std::pair<std::string, std::vector<double>>> arrays;
    std::vector<int64_t> layout;
    for (const auto& [key, value] : named) {
      Read(key, value, &arrays, &layout);
    }
    if (layout_.empty()) layout_ = layout;
    if (layout != layout_) {
      throw InvalidArgument(
          fmt::format("{}: observation() returned names or shapes that differ "
                      "from the first call",
                      name_));
    }
    for (size_t i = 0; i < arrays.size(); ++i) {
      const auto& [key, values] = arrays[i];
      const int64_t columns = layout[i * 3 + 2];
      if (columns < 0) {
        writer.Scalar(key.c_str(), values[0]);
      } else {
        writer.Begin(key.c_str(), columns);
        writer.Append(values);
      }
    }
  }

  double Reward(const env::Physics& /*physics*/) const override {
    nb::gil_scoped_acquire acquire;
    return Number(functions_->reward(view_), "reward");
  }

  std::optional<double> Termination(
      const env::Physics& /*physics*/) const override {
    nb::gil_scoped_acquire acquire;
    if (functions_->termination.is_none()) return std::nullopt;
    const nb::object discount = functions_->termination(view_);
    if (discount.is_none()) return std::nullopt;
    const auto text = nb::cast<std::string>(nb::str(discount));
    // True could mean "over" or a discount of 1
    const bool is_bool = text == "True" || text == "False";
    const double number = is_bool ? -1.0 : Number(discount, "termination");
    if (!(number >= 0.0 && number <= 1.0)) {
      throw InvalidArgument(fmt::format(
          "{}: termination() must return None or a discount in [0, 1], got {}",
          name_, text));
    }
    return number;
  }

 private:
  // NumberCheck refuses those that are not finite, with their place.
  double Number(const nb::object& value, const char* function) const {
    try {
      return nb::cast<double>(nb::float_(value));
    } catch (const nb::python_error&) {
      // float() refuses None, a list or a text
    }
    throw InvalidArgument(
        fmt::format("{}: {}() must return a finite number, got {:.80}", name_,
                    function, nb::cast<std::string>(nb::repr(value))));
  }

  // Appends one array and its place in the layout: hash of the name, elements,
  // and columns (0: one dimension, -1: a scalar).
  void Read(const nb::handle& key, const nb::handle& value,
            std::vector<std::pair<std::string, std::vector<double>>>* arrays,
            std::vector<int64_t>* layout) const {
    const auto name = nb::cast<std::string>(nb::str(key));
    const nb::object array =
        nb::module_::import_("numpy").attr("asarray")(value, "float64");
    const auto view =
        nb::cast<nb::ndarray<const double, nb::c_contig, nb::device::cpu>>(
            array);
    const size_t rank = view.ndim();
    if (rank > 2) {
      throw InvalidArgument(fmt::format(
          "{}: observation()['{}'] has {} dimensions, want at most 2", name_,
          name, rank));
    }
    layout->push_back(static_cast<int64_t>(std::hash<std::string>{}(name)));
    layout->push_back(static_cast<int64_t>(view.size()));
    layout->push_back(rank == 0   ? -1
                      : rank == 1 ? 0
                                  : static_cast<int64_t>(view.shape(1)));
    arrays->emplace_back(
        name, std::vector<double>(view.data(), view.data() + view.size()));
  }

  const std::string name_;
  const std::shared_ptr<const TaskFunctions> functions_;
  nb::object view_;
  mutable std::vector<int64_t> layout_;
};

}  // namespace

env::Physics& PhysicsView::get() const {
  if (physics_ == nullptr) {
    throw InvalidArgument("physics: its environment has gone");
  }
  return *physics_;
}

PythonTaskDefinition DefinePythonTask(std::string name,
                                      std::filesystem::path mjcf,
                                      std::string mjcf_text,
                                      const env::ControlOptions& options,
                                      TaskFunctions functions) {
  const std::shared_ptr<TaskFunctions> shared = Share(std::move(functions));
  return {.definition = {.name = name,
                         .model = std::move(mjcf),
                         .options = options,
                         .edit = {},
                         .make_task =
                             [name, shared] {
                               return std::make_unique<PythonTask>(name,
                                                                   shared);
                             },
                         .model_text = std::move(mjcf_text)},
          .functions = shared};
}

}  // namespace replicant::python
