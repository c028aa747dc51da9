#include "evaluation/evaluator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "env/recorder.h"

namespace replicant::evaluation {
namespace {

// The video of an evaluation's first episode. The file appears once the episode
// is over, or not at all.
class Film {
 public:
  Film(env::Environment* environment, std::vector<env::CameraOptions> cameras,
       const std::filesystem::path& file)
      : environment_(environment),
        cameras_(std::move(cameras)),
        file_(file),
        // in the same folder and of the same kind
        unfinished_(file.parent_path() / ("." + file.filename().string())) {}
  ~Film() {
    recorder_.reset();
    std::error_code ignored;
    if (!is_whole_) std::filesystem::remove(unfinished_, ignored);
  }
  Film(const Film&) = delete;
  Film& operator=(const Film&) = delete;

  void OnStep(const env::TimeStep& step) {
    if (is_over_) return;
    try {
      if (!recorder_) {
        if (file_.has_parent_path()) MakeFolders(file_.parent_path());
        recorder_.emplace(environment_, cameras_, unfinished_);
      }
      recorder_->Record(step);
    } catch (const std::exception& e) {
      problem_ = e.what();
      is_over_ = true;
    }
    if (step.IsLast()) End();
  }

  // Keeps what there is, of an episode that was cut off too.
  void End() {
    if (!recorder_ || std::exchange(is_over_, true)) return;
    try {
      recorder_->Finish();
      std::filesystem::rename(unfinished_, file_);
      is_whole_ = true;
    } catch (const std::exception& e) {
      problem_ = e.what();
    }
  }

  // Why there is no video; empty while nothing has failed.
  const std::string& problem() const { return problem_; }

 private:
  env::Environment* environment_;
  const std::vector<env::CameraOptions> cameras_;
  const std::filesystem::path file_;
  const std::filesystem::path unfinished_;
  std::optional<env::Recorder> recorder_;
  bool is_over_ = false;
  bool is_whole_ = false;
  std::string problem_;
};

// The task at its full difficulty, whatever the number of an episode.
env::TaskConfig WithoutCurriculum(env::TaskConfig task) {
  for (env::FieldRandomization& change : task.randomization) {
    change.ramp_episodes = 0;
  }
  return task;
}

}  // namespace

Evaluator::Evaluator(const env::TaskRegistry& registry, Options options)
    : options_(std::move(options)),
      environment_(env::MakeConfiguredEnvironment(
          registry, WithoutCurriculum(options_.task),
          static_cast<uint64_t>(options_.evaluation.seed), /*index=*/0)),
      task_(agents::MakeTaskSpec(options_.task, *environment_)),
      policy_(*options_.agent, task_,
              {.backend = options_.backend, .has_noise = false}) {}

std::optional<Evaluator::Trial> Evaluator::Run(
    const std::filesystem::path& video,
    const std::function<bool()>& should_stop) {
  std::optional<Film> film;
  if (!video.empty()) {
    film.emplace(environment_.get(),
                 options_.evaluation.VideoCameras(options_.task), video);
  }
  auto result =
      Evaluate(task_, environment_.get(), &policy_,
               {.num_episodes = options_.evaluation.episodes,
                .max_episode_steps = options_.evaluation.max_episode_steps,
                .on_step =
                    [&](const env::TimeStep& step) {
                      if (film) film->OnStep(step);
                    },
                .should_stop = should_stop});
  if (!result) return std::nullopt;
  if (film) film->End();
  if (result->is_cut) {
    spdlog::warn(
        "{}: episode {} of an evaluation had no end after {} control steps "
        "(evaluation.max_episode_steps) and is cut off there; hint: give the "
        "environment a time limit, such as gymnasium.wrappers.TimeLimit",
        options_.task.name, result->returns.size() - 1,
        options_.evaluation.max_episode_steps);
  }
  return Trial{.result = std::move(*result),
               .video_problem = film ? film->problem() : ""};
}

std::filesystem::path VideoFile(const std::filesystem::path& run_folder,
                                int64_t step) {
  return run_folder / "videos" / fmt::format("step-{:012}.mp4", step);
}

}  // namespace replicant::evaluation
