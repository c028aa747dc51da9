#include "programs/run/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/metrics/format.h"
#include "evaluation/best_policy.h"
#include "learner/checkpoint_folder.h"
#include "programs/run/shell_word.h"

namespace replicant::programs {
namespace {

using metrics::FormatDuration;
using metrics::FormatQuantity;
using Rows = std::vector<std::pair<std::string, std::string>>;

std::string TaskText(const env::TaskConfig& task) {
  if (!task.has_pixels) return task.name + " from state";
  const std::vector<env::CameraOptions> cameras = task.pixels.Cameras();
  std::string sizes;
  for (const env::CameraOptions& camera : cameras) {
    sizes += fmt::format("{}{}{}x{}", sizes.empty() ? "" : " and ",
                         cameras.size() > 1 ? camera.camera + " " : "",
                         camera.height, camera.width);
  }
  return fmt::format("{} from pixels{}, {}, {} frames", task.name,
                     task.has_state_beside_pixels ? " and state" : "", sizes,
                     task.pixels.frame_stack);
}

// "1.23M (4.1k/s)".
std::string AmountText(double amount, double seconds) {
  return fmt::format("{} ({}/s)", FormatQuantity(amount),
                     FormatQuantity(amount / seconds));
}

void AddReturns(const std::vector<evaluation::EvaluationRecord>& records,
                Rows* rows) {
  if (records.empty()) return;
  const auto best = std::max_element(
      records.begin(), records.end(), [](const auto& a, const auto& b) {
        // a policy that has diverged is none
        return std::isnan(a.mean) || a.mean < b.mean;
      });
  const auto text = [](const evaluation::EvaluationRecord& record) {
    return fmt::format("{:.1f} +- {:.1f} ({} episodes) at step {}, {}",
                       record.mean, record.standard_deviation,
                       record.num_episodes, record.step,
                       FormatDuration(record.seconds));
  };
  rows->emplace_back("last return", text(records.back()));
  rows->emplace_back("best return", text(*best));
}

// The newest video: names hold steps of equal length.
std::optional<std::filesystem::path> NewestVideo(
    const std::filesystem::path& run_folder) {
  std::optional<std::filesystem::path> newest;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(run_folder / "videos", error)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".mp4" || path.filename().string()[0] == '.') {
      continue;
    }
    if (!newest || path > *newest) newest = path;
  }
  return newest;
}

}  // namespace

std::optional<std::filesystem::path> NewestCheckpoint(
    const std::filesystem::path& run_folder) {
  const learner::CheckpointReader checkpoints(run_folder / "checkpoints");
  const std::vector<int64_t> steps = checkpoints.Steps();
  if (steps.empty()) return std::nullopt;
  return checkpoints.PathOf(steps.back());
}

std::string SummaryTable(
    const RunConfig& config, const RunTotals& totals,
    const std::vector<evaluation::EvaluationRecord>& records,
    const std::filesystem::path& run_folder, const Commands& commands) {
  const bool has_actors = config.has_actors();
  Rows rows = {{has_actors ? "task" : "workload",
                has_actors ? TaskText(config.task) : config.learner.workload},
               {"status", totals.status + ": " + totals.reason}};
  std::string wall_clock = FormatDuration(totals.wall_clock_s);
  if (totals.resumed_at > 0) {
    wall_clock +=
        fmt::format(" since step {}, where it was resumed", totals.resumed_at);
  }
  rows.emplace_back("wall-clock", wall_clock);
  if (!std::isnan(totals.frames)) {
    rows.emplace_back("frames", AmountText(totals.frames, totals.wall_clock_s));
  }
  if (!std::isnan(totals.updates)) {
    rows.emplace_back("updates",
                      AmountText(totals.updates, totals.wall_clock_s));
  }
  if (!std::isnan(totals.samples_per_insert)) {
    rows.emplace_back("samples per insert",
                      FormatQuantity(totals.samples_per_insert));
  }
  for (const auto& [name, value] : totals.last_scalars) {
    rows.emplace_back("last " + name, FormatQuantity(value));
  }
  AddReturns(records, &rows);
  if (const auto best = evaluation::BestPolicy::Find(run_folder)) {
    // not the best return, if the disk was full then or a resume has lost it
    rows.emplace_back("best policy", fmt::format("{} (return {:.1f})",
                                                 best->checkpoint.string(),
                                                 best->mean_return));
  }
  std::error_code no_curve;
  if (const auto curve = run_folder / "curve.png";
      std::filesystem::file_size(curve, no_curve) > 0 && !no_curve) {
    rows.emplace_back("learning curve", curve.string());
  }
  if (const auto video = NewestVideo(run_folder)) {
    rows.emplace_back("video", video->string());
  }
  const std::string make_env = MakeEnvOf(config);
  const std::string environment =
      make_env.empty()
          ? ""
          : fmt::format("{}={} ", env::kMakeEnvVariable, ShellWord(make_env));
  const auto command = [&](const char* program, const std::string& arguments) {
    std::string line = environment;
    for (const std::string& word : commands.Of(program)) {
      line += ShellWord(word) + " ";
    }
    return line + arguments;
  };
  const std::string run = ShellWord(run_folder.string());
  if (const auto checkpoint = NewestCheckpoint(run_folder)) {
    rows.emplace_back("checkpoint", checkpoint->string());
    if (totals.resume_arguments.empty()) {
      rows.emplace_back("to resume", command("fleet", "--resume " + run));
    } else {
      std::string arguments;
      for (size_t i = 1; i < totals.resume_arguments.size(); ++i) {
        arguments += (i > 1 ? " " : "") + ShellWord(totals.resume_arguments[i]);
      }
      rows.emplace_back("to resume",
                        command(totals.resume_arguments[0].c_str(), arguments));
    }
    if (has_actors) {
      rows.emplace_back(
          "to evaluate",
          command("evaluator",
                  fmt::format("--checkpoint {} --episodes {}{}", run,
                              config.evaluation.episodes,
                              // nothing draws a Python environment
                              make_env.empty() ? " --video" : "")));
    }
  }
  std::string text;
  for (const auto& [label, value] : rows) {
    text += fmt::format("{:<18}  {}\n", label, value);
  }
  return text;
}

}  // namespace replicant::programs
