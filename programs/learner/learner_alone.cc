#include "programs/learner/learner_alone.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "base/config/document.h"
#include "base/fs.h"
#include "base/metrics/format.h"
#include "fleet/run_folder.h"
#include "programs/run/check_resume.h"
#include "programs/run/summary.h"

namespace replicant::programs {
namespace {

bool IsShown(const std::string& name) {
  return name.find("loss") != std::string::npos ||
         name.find("accuracy") != std::string::npos;
}

std::filesystem::path FolderOf(const Invocation& invocation) {
  return std::filesystem::absolute(RunFolderOf(invocation.config()));
}

}  // namespace

std::string ProgressText(const RunConfig& config,
                         const learner::Progress& progress,
                         const Scalars& scalars) {
  std::string text = fmt::format("step {}: {:.1f} steps/s", progress.step,
                                 progress.steps_per_s);
  if (config.has_actors()) {
    text += fmt::format(", {:.0f} % of it waiting; {} frames",
                        100.0 * progress.wait_share, progress.frames);
  } else {
    text += fmt::format(
        ", {:.0f} examples/s, {:.0f} % of the time waiting for them",
        progress.steps_per_s * static_cast<double>(config.learner.batch_size),
        100.0 * progress.wait_share);
    if (progress.epochs)
      text += fmt::format("; epoch {:.2f}", *progress.epochs);
  }
  const char* separator = "; ";
  for (const auto& [name, value] : scalars) {
    if (!IsShown(name)) continue;
    text +=
        fmt::format("{}{} {}", separator, name, metrics::FormatQuantity(value));
    separator = ", ";
  }
  return text;
}

FileLock LockAlone(const Invocation& invocation) {
  const std::filesystem::path folder = FolderOf(invocation);
  MakeFolders(folder);
  CheckSameRun(invocation.config(), invocation.loaded.resolved_yaml, folder);
  return fleet::RunFolder::Lock(folder);
}

void BeginAlone(const Invocation& invocation) {
  const std::filesystem::path folder = FolderOf(invocation);
  AtomicWriteFile(folder / "config.yaml", invocation.loaded.resolved_yaml);
  std::printf("run folder: %s\n", folder.c_str());
  std::fflush(stdout);
}

void SummarizeAlone(const Invocation& invocation, learner::EndReason reason,
                    int64_t first_step, const learner::Progress& last,
                    const Scalars& scalars, double seconds) {
  const std::filesystem::path folder = FolderOf(invocation);
  RunTotals totals{
      .status = reason == learner::EndReason::kStopped ? "stopped" : "complete",
      .reason = std::string(ToString(reason)),
      .resumed_at = first_step,
      .wall_clock_s = seconds,
      .updates = static_cast<double>(last.step - first_step)};
  for (const auto& [name, value] : scalars) {
    if (IsShown(name)) totals.last_scalars.emplace_back(name, value);
  }
  totals.resume_arguments = {"learner", "--config",
                             (folder / "config.yaml").string(), "--set",
                             config::Setting("run.dir", folder.string())};
  std::printf("\n%s", SummaryTable(invocation.config(), totals, {}, folder,
                                   invocation.commands)
                          .c_str());
  std::fflush(stdout);
}

}  // namespace replicant::programs
