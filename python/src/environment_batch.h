#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "env/camera.h"
#include "env/task_config.h"
#include "env/vector_environment.h"
#include "python/src/module.h"
#include "python/src/python_task.h"

namespace replicant::python {

// The next step of an environment whose episode is over; the names are
// gymnasium.vector.AutoresetMode's.
enum class AutoresetMode {
  kNextStep,  // its next step starts an episode and ignores the action
  kSameStep,  // the same step starts one; the last observation is separate
  kDisabled,  // the caller resets it
};

struct EnvironmentBatchOptions {
  env::TaskConfig task;
  // Added to the Control Suite's tasks; its name is task.name.
  std::optional<PythonTaskDefinition> own_task;
  int64_t num_environments = 1;
  // Index of environment 0, which with the seed selects its random streams.
  int64_t first_index = 0;
  int threads = 0;
  // Whether an observation has the float64 arrays.
  bool has_state = true;
  // One array [E, state size] called "state" instead of one for each name.
  bool is_flat = false;
  AutoresetMode autoreset = AutoresetMode::kNextStep;
};

// Environments whose results are NumPy arrays without a copy.
//
// A call writes into one of a few sets of arrays and returns these very arrays.
// A set is used again once nothing else refers to its arrays, their views or
// their DLPack exports: the reference count of each array is then back to its
// value without users. So an array keeps its numbers as long as it is held, and
// a loop that drops the arrays of earlier steps allocates nothing.
//
// Environments run without the GIL. A forked child must make its own batch,
// since the threads do not exist there; a call in it throws.
//
// Thread-safety: one thread at a time calls the methods, with the GIL; a call
// while another one is under way throws Error.
class EnvironmentBatch {
 public:
  using Actions = nanobind::ndarray<const double, nanobind::c_contig,
                                    nanobind::device::cpu>;
  using Ids = nanobind::ndarray<const int32_t, nanobind::ndim<1>,
                                nanobind::c_contig, nanobind::device::cpu>;
  // One seed for all environments, or one for each.
  using Seeds = std::vector<uint64_t>;

  EnvironmentBatch(EnvironmentBatchOptions options, const Seeds& seeds);
  ~EnvironmentBatch();
  EnvironmentBatch(const EnvironmentBatch&) = delete;
  EnvironmentBatch& operator=(const EnvironmentBatch&) = delete;

  // Makes all environments anew with other seeds, as the constructor does.
  void Seed(const Seeds& seeds);

  // Starts an episode in every environment, or in those whose element of
  // `mask` [E] is set. Returns the observation; rows of other environments are
  // their last ones.
  nanobind::object Reset(
      const std::optional<nanobind::ndarray<const bool, nanobind::ndim<1>,
                                            nanobind::c_contig>>& mask);

  // Steps all environments. Returns Gymnasium's (observation, reward f64 [E],
  // terminated bool [E], truncated bool [E], info).
  nanobind::tuple Step(const Actions& actions);
  // Steps all environments. Returns dm_env's (step_type i8 [E], reward,
  // discount f64 [E], observation).
  nanobind::tuple DmStep(const Actions& actions);
  nanobind::tuple DmReset();

  // Starts a step in the environments `ids` and returns at once.
  void Send(const Actions& actions, const Ids& ids);
  // Waits for `count` environments. Returns as Step() does, with rows in the
  // order of info["env_id"], i32 [count].
  nanobind::tuple Receive(int count);

  // Draws environment `id`, uint8 [height, width, 3].
  nanobind::object Render(int id, env::CameraOptions camera);

  // For the end of the program, after which no thread may take the GIL: with a
  // task in Python waits for the call of another thread and for the steps that
  // are under way. Later calls throw Error; in other threads they raise
  // SystemExit, which ends such a thread.
  void Finish();

  // The functions of a task written in Python; null: none.
  TaskFunctions* task_functions() const {
    return options_.own_task ? options_.own_task->functions.get() : nullptr;
  }
  int size() const { return environments_->size(); }
  int num_under_way() const { return environments_->num_under_way(); }
  const env::ActionSpec& action_spec() const {
    return environments_->action_spec();
  }
  // The arrays of an observation: the requested arrays of the environment.
  const std::vector<env::ArraySpec>& observation_arrays() const {
    return arrays_;
  }
  double control_timestep_s() {
    return environments_->environment(0).control_timestep_s();
  }
  env::EnvironmentCounters counters() const {
    return environments_->counters();
  }

 private:
  // The arrays that a call returns.
  struct ResultArrays {
    // name and array [E, ...], in order
    std::vector<std::pair<nanobind::object, nanobind::object>> observations;
    nanobind::object reward, discount, terminated, truncated, step_type;
    // every array that may be referenced, and its count without other
    // references
    std::vector<nanobind::object> arrays;
    std::vector<Py_ssize_t> counts_at_rest;

    std::span<double> state;
    std::span<uint8_t> pixels;
    std::span<double> rewards, discounts;
    std::span<bool> are_terminated, are_truncated;
    std::span<int8_t> step_types;
  };

  void MakeEnvironments(const Seeds& seeds);
  std::unique_ptr<ResultArrays> MakeArrays() const;
  static bool IsAtRest(const ResultArrays& arrays);
  // Arrays without references.
  ResultArrays& TakeArrays();
  env::BatchBuffer BufferOf(ResultArrays& arrays);
  nanobind::object ObservationOf(const ResultArrays& arrays) const;
  // A copy of the newest observation of environment `id`.
  nanobind::object CopyObservation(int id) const;
  // Fills rewards, flags and step types from steps_ for rows [0, count).
  void FillResults(ResultArrays& arrays, const std::vector<int>& ids);
  // Makes `arrays` the results of all environments, of a call that has ended.
  void SetNow(ResultArrays& arrays);
  // Row `row` of an array [E, ...].
  template <typename T>
  std::span<T> RowOf(std::span<T> all, int row) const;
  // Steps and resets all environments into arrays_now_.
  void Advance(const Actions& actions);
  void ResetAll();
  // For kSameStep: starts the episodes of the environments that are at their
  // end; returns the info with their last observations.
  nanobind::dict StartEpisodes();
  // Begins a public call. Throws Error in a fork and while another call is
  // under way; after Finish() as described there.
  ExclusiveCall Begin();
  // Throws InvalidArgument, with the name of the call.
  void CheckNoneIsUnderWay(const char* call) const;
  std::span<const double> CheckActions(const Actions& actions,
                                       size_t rows) const;

  const EnvironmentBatchOptions options_;
  const nanobind::module_ numpy_;
  const pid_t process_;
  const env::TaskRegistry registry_;
  bool is_busy_ = false;
  std::thread::id finished_by_;  // the thread that called Finish()
  env::MjModelPtr model_;
  std::unique_ptr<env::VectorEnvironment> environments_;
  std::vector<env::ArraySpec> arrays_;
  std::vector<int> all_ids_;
  std::vector<env::TimeStep> steps_;
  std::vector<std::unique_ptr<ResultArrays>> pool_;
  ResultArrays* now_ = nullptr;            // of the last synchronous call
  std::unique_ptr<ResultArrays> staging_;  // where sent environments write
  // newest numbers of each environment, [E, state size]
  std::vector<double> last_states_;
  // cameras by environment for Render(), and the options that they were made
  // with
  std::vector<std::unique_ptr<env::Camera>> cameras_;
  std::string camera_key_;
};

}  // namespace replicant::python
