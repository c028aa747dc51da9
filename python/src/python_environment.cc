#include "python/src/python_environment.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace replicant::python {
namespace nb = nanobind;
namespace {

template <typename T>
using Elements =
    nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Calls `function` with the GIL. `where` starts the message of an exception.
template <typename Function>
auto InPython(const std::string& where, const Function& function) {
  nb::gil_scoped_acquire acquire;
  try {
    return function();
  } catch (const nb::python_error& e) {
    // what this package itself refuses needs no traceback
    const nb::object errors = nb::module_::import_("replicant.errors");
    const auto message = [&] {
      return fmt::format("{}: {}", where, nb::str(e.value()).c_str());
    };
    if (e.matches(errors.attr("ConfigError"))) throw ConfigError(message());
    if (e.matches(errors.attr("InvalidArgument"))) {
      throw InvalidArgument(message());
    }
    throw Error(fmt::format("{}: {}", where, e.what()));
  } catch (const nb::cast_error&) {
    throw Error(fmt::format("{}: the adapter returned another type", where));
  }
}

class PythonEnvironment : public env::Environment {
 public:
  PythonEnvironment(std::string task, const nb::object& make_adapter,
                    const env::EnvironmentOptions& options)
      : task_(std::move(task)), seed_(options.seed), index_(options.index) {
    InPython(task_, [&] { adapter_ = make_adapter(); });
    try {
      ReadSpecs();
    } catch (...) {
      Close();
      throw;
    }
    state_.resize(static_cast<size_t>(observation_spec_.state_size()));
    frame_.resize(static_cast<size_t>(observation_spec_.frame_size));
  }

  ~PythonEnvironment() override { Close(); }
  PythonEnvironment(const PythonEnvironment&) = delete;
  PythonEnvironment& operator=(const PythonEnvironment&) = delete;

  const env::ObservationSpec& observation_spec() const override {
    return observation_spec_;
  }
  const env::ActionSpec& action_spec() const override { return action_spec_; }

  env::TimeStep Reset(const env::ObservationBuffer& out) override {
    env::CheckBuffer(out, observation_spec_, "Reset");
    RandomStream random(
        seed_, fmt::format("{}/{}/{}", task_, index_, counters_.episodes));
    // the range of NumPy's and Gymnasium's seeds
    const uint64_t seed = random() >> 33;
    step_ = 0;
    ++counters_.episodes;
    InPython(Where(), [&] {
      adapter_.attr("reset")(seed);
      Keep();
    });
    is_over_ = false;
    Observe(out);
    return {};
  }

  env::TimeStep Step(std::span<const double> action,
                     const env::ObservationBuffer& out) override {
    if (is_over_) return Reset(out);
    env::CheckAction(action, action_spec_, "Step");
    env::CheckBuffer(out, observation_spec_, "Step");
    env::TimeStep step{.step_type = env::StepType::kMid};
    ++step_;
    InPython(Where(), [&] {
      const std::vector<double> copy(action.begin(), action.end());
      const auto [observation, reward, discount, is_last] =
          nb::cast<std::tuple<nb::object, double, double, bool>>(
              adapter_.attr("step")(copy));
      Keep();
      step.reward = reward;
      step.discount = discount;
      if (is_last) step.step_type = env::StepType::kLast;
    });
    ++counters_.steps;
    is_over_ = step.IsLast();
    Observe(out);
    return step;
  }

  void SeekEpisode(int64_t episode) override {
    counters_.episodes = episode;
    is_over_ = true;
  }

  void Observe(const env::ObservationBuffer& out) override {
    env::CheckBuffer(out, observation_spec_, "Observe");
    if (!out.state.empty()) std::ranges::copy(state_, out.state.begin());
    for (const std::span<uint8_t> images : {out.pixels, out.frame}) {
      if (!images.empty()) std::ranges::copy(frame_, images.begin());
    }
  }

  env::GoalReward* goal_reward() override {
    return has_goals_ ? &goal_reward_ : nullptr;
  }

  bool StepsWithOthers() const override { return is_of_batch_; }
  void Announce(std::span<const double> action) override {
    if (!is_of_batch_) return;
    InPython(Where(), [&] {
      adapter_.attr("announce")(
          std::vector<double>(action.begin(), action.end()));
    });
  }

  double control_timestep_s() const override { return control_timestep_s_; }
  const env::Physics& physics() const override { return NoPhysics(); }
  env::Physics& mutable_physics() override { return NoPhysics(); }
  bool ResetChangesAssets() const override { return false; }
  const env::EnvironmentCounters& counters() const override {
    return counters_;
  }

 private:
  [[noreturn]] env::Physics& NoPhysics() const {
    throw InvalidArgument(fmt::format(
        "{}: not a MuJoCo simulation, so there is nothing to draw", task_));
  }

  void ReadSpecs() {
    InPython(task_, [&] {
      using Array = std::pair<std::string, std::vector<int64_t>>;
      for (const auto& [attribute, dtype] :
           {std::pair("observation", DType::kF64),
            std::pair("images", DType::kU8)}) {
        for (const auto& [name, dims] :
             nb::cast<std::vector<Array>>(adapter_.attr(attribute))) {
          observation_spec_.arrays.push_back(
              {.name = name,
               .shape = Shape(std::span<const int64_t>(dims)),
               .dtype = dtype});
        }
      }
      observation_spec_.frame_size = observation_spec_.pixels_size();
      action_spec_.minimum =
          nb::cast<std::vector<double>>(adapter_.attr("minimum"));
      action_spec_.maximum =
          nb::cast<std::vector<double>>(adapter_.attr("maximum"));
      control_timestep_s_ =
          nb::cast<double>(adapter_.attr("control_timestep_s"));
      has_goals_ = nb::cast<bool>(adapter_.attr("has_goals"));
      is_of_batch_ = nb::cast<bool>(adapter_.attr("is_of_batch"));
    });
  }

  // Calls the environment's own close().
  void Close() {
    nb::gil_scoped_acquire acquire;
    try {
      adapter_.attr("close")();
    } catch (const nb::python_error& e) {
      spdlog::warn("{}: close(): {}", task_, e.what());
    }
    adapter_.reset();
  }

  // For messages: "python-environment: environment 3, episode 12, step 49".
  std::string Where() const {
    return fmt::format("{}: environment {}, episode {}, step {}", task_, index_,
                       counters_.episodes - 1, step_);
  }

  // Takes the adapter's newest observation; needs the GIL.
  void Keep() {
    const auto take = [&](const char* attribute, auto& values) {
      using T = typename std::remove_reference_t<decltype(values)>::value_type;
      const auto array = nb::cast<Elements<T>>(adapter_.attr(attribute));
      if (array.size() != values.size()) {
        throw InvalidArgument(
            fmt::format("{}: an observation has {} {}, but the first had {}",
                        Where(), array.size(), attribute, values.size()));
      }
      std::copy_n(array.data(), array.size(), values.begin());
    };
    take("numbers", state_);
    take("pixels", frame_);
  }

  // The adapter's, which has the infos of the newest episode.
  class Goals : public env::GoalReward {
   public:
    explicit Goals(const PythonEnvironment* environment)
        : environment_(*environment) {}

    int64_t goal_size() const override {
      return CallAdapter<int64_t>("goal_size");
    }

    std::vector<double> Achieved(int64_t step) override {
      return CallAdapter<std::vector<double>>("achieved_goal", step);
    }

    Result Of(int64_t step, std::span<const double> desired) override {
      const auto [reward, discount] = CallAdapter<std::tuple<double, double>>(
          "goal_reward", step,
          std::vector<double>(desired.begin(), desired.end()));
      return {.reward = reward, .discount = discount};
    }

   private:
    template <typename T, typename... Arguments>
    T CallAdapter(const char* method, const Arguments&... arguments) const {
      T result{};
      InPython(environment_.Where(), [&] {
        result = nb::cast<T>(environment_.adapter_.attr(method)(arguments...));
      });
      return result;
    }

    const PythonEnvironment& environment_;
  };

  const std::string task_;
  const uint64_t seed_;
  const int64_t index_;
  nb::object adapter_;
  bool has_goals_ = false;
  bool is_of_batch_ = false;
  Goals goal_reward_{this};
  env::ObservationSpec observation_spec_;
  env::ActionSpec action_spec_;
  double control_timestep_s_ = 0.0;
  // the newest observation: its numbers, and its images one after the other
  std::vector<double> state_;
  std::vector<uint8_t> frame_;
  bool is_over_ = true;
  int64_t step_ = 0;  // of the episode
  env::EnvironmentCounters counters_;
};

}  // namespace

env::TaskDefinition DefinePythonEnvironment(std::string name,
                                            nb::object make_adapter) {
  // destroyed with the GIL, whichever thread drops it last
  const std::shared_ptr<const nb::object> make(
      new nb::object(std::move(make_adapter)), [](const nb::object* object) {
        nb::gil_scoped_acquire acquire;
        delete object;
      });
  env::TaskDefinition task;
  task.name = name;
  task.make_environment = [name, make](const env::EnvironmentOptions& options)
      -> std::unique_ptr<env::Environment> {
    return std::make_unique<PythonEnvironment>(name, *make, options);
  };
  return task;
}

}  // namespace replicant::python
