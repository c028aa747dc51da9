#include "learner/learner.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fs.h"
#include "engine/runtime/numeric_check.h"
#include "engine/runtime/parameters.h"

namespace replicant::learner {
namespace {

// Longest wait of a step for input before the loop checks the limits.
constexpr auto kPatience = std::chrono::milliseconds(100);

}  // namespace

std::string_view ToString(EndReason reason) {
  switch (reason) {
    case EndReason::kStepLimit:
      return "step limit";
    case EndReason::kTimeLimit:
      return "time limit";
    case EndReason::kFrameLimit:
      return "frame limit";
    case EndReason::kEpochLimit:
      return "epoch limit";
    case EndReason::kEndOfInput:
      return "end of the input";
    case EndReason::kStopped:
      return "asked to stop";
  }
  REPLICANT_CHECK(false, "EndReason {}", static_cast<int>(reason));
}

void Follow(Workload& workload, const std::function<bool()>& should_stop,
            Clock& clock) {
  while (!should_stop() &&
         workload.Step(clock.Now() + kPatience) != NextResult::kEnd) {
  }
}

bool Learner::Interval::HasPassed(Clock::TimePoint now) {
  if (length.count() == 0 || now < next) return false;
  next = now + length;
  return true;
}

Learner::Learner(const LearnerConfig& config,
                 const std::filesystem::path& folder, Workload* workload,
                 LearnerHooks hooks, Clock* clock, DiskQueue* disk)
    : config_(config),
      workload_(*workload),
      hooks_(std::move(hooks)),
      folder_(folder),
      clock_(*clock),
      disk_(disk),
      checkpoints_(folder / "checkpoints", config.num_kept_checkpoints),
      run_checkpointer_(
          &checkpoints_, workload, [this] { return seconds(); }, clock, disk),
      curves_("learner", {.folder = folder, .disk = disk}, *clock),
      lines_({.path = folder / "learner.jsonl", .disk = disk}, *clock) {
  workload_.SetShouldStop(hooks_.should_stop);
  if (const auto info = checkpoints_.LoadNewest(workload_.variables())) {
    workload_.Restore(info->metadata);
    step_ = info->step;
    if (CheckpointedInput* const input = workload_.input()) {
      input->Restore(checkpoints_.PathOf(step_));
    }
    seconds_before_ = checkpoints_.ReadManifest(step_).seconds;
    run_checkpointer_.ContinueFrom(step_);
    spdlog::info("continues from the checkpoint of step {}", step_);
  } else {
    workload_.Begin();
  }
  // what an earlier process wrote of steps that it lost
  curves_.Rewind(step_, workload_.NumFrames());
  lines_.Rewind(step_);
  if (config_.limits.max_epochs > 0.0 && !workload_.NumEpochs()) {
    throw ConfigError(
        "learner.limits.max_epochs: the data of this workload has no epochs; "
        "allowed here: 0");
  }
  if (!config_.parameter_bind.empty()) {
    parameters_.emplace(config_.parameter_bind,
                        rpc::GroupKey::FromFile(config_.key_file));
    spdlog::info("publishes parameters at {}", parameters_->endpoint());
    Publish();
  }
}

double Learner::seconds() const {
  return seconds_before_ + (start_ ? ToSeconds(clock_.Now() - *start_) : 0.0);
}

EndReason Learner::Run() {
  start_ = reported_at_ = clock_.Now();
  reported_step_ = step_;
  reported_wait_s_ = workload_.WaitSeconds();
  report_ = {.next = *start_, .length = FromSeconds(config_.log_interval_s)};
  report_.next += report_.length;
  publish_ = {.next = *start_,
              .length = FromSeconds(config_.publish_interval_s)};
  publish_.next += publish_.length;
  checkpoint_ = {.next = *start_,
                 .length = FromSeconds(config_.checkpoint_interval_s)};
  checkpoint_.next += checkpoint_.length;

  if (!hooks_.config_yaml.empty()) {
    curves_.by_updates().AddText(
        "run/config", "```yaml\n" + hooks_.config_yaml + "\n```", step_);
  }
  AnnounceLimit();

  std::optional<EndReason> end;
  while (!(end = FindEnd())) {
    if (published_step_ != step_ && publish_.HasPassed(clock_.Now())) Publish();
    TakeStep();
    const Clock::TimePoint now = clock_.Now();
    if (report_.HasPassed(now)) Report(now);
    if (checkpoint_.HasPassed(now)) run_checkpointer_.Start(step_);
    run_checkpointer_.Advance(step_);
  }
  unsaved_ =
      run_checkpointer_.SaveLast(step_, [this]() -> std::optional<int64_t> {
        if (IsAtStepLimit() || is_input_over_) return std::nullopt;
        TakeStep();
        return step_;
      });
  workload_.Stop();
  Report(clock_.Now());
  Publish();
  curves_.Flush();
  lines_.Flush();
  spdlog::info("ends at step {}: {}", step_, ToString(*end));
  return *end;
}

std::optional<EndReason> Learner::FindEnd() const {
  const LimitsConfig& limits = config_.limits;
  if (is_input_over_) return EndReason::kEndOfInput;
  if (IsAtStepLimit()) return EndReason::kStepLimit;
  if (limits.max_frames > 0 && workload_.NumFrames() >= limits.max_frames) {
    return EndReason::kFrameLimit;
  }
  if (limits.max_epochs > 0.0 &&
      workload_.NumEpochs().value_or(0.0) >= limits.max_epochs) {
    return EndReason::kEpochLimit;
  }
  if (limits.max_seconds > 0.0 && seconds() >= limits.max_seconds) {
    return EndReason::kTimeLimit;
  }
  if (hooks_.should_stop()) return EndReason::kStopped;
  return std::nullopt;
}

NextResult Learner::RunStep() {
  try {
    return workload_.Step(clock_.Now() + kPatience);
  } catch (const runtime::NumericError& error) {
    throw runtime::NumericError(
        fmt::format("step {}: {}", step_, error.what()));
  }
}

void Learner::TakeStep() {
  switch (RunStep()) {
    case NextResult::kOk:
      step_ += workload_.NumNewSteps();
      AddScalars();
      WritePictures();
      wait_reason_.clear();
      hooks_.on_step(step_, seconds());
      break;
    case NextResult::kTimeout:
      wait_reason_ = workload_.WaitReason();
      // a step of several batches may have met the limit between two
      AnnounceLimit();
      break;
    case NextResult::kEnd:
      is_input_over_ = true;
      break;
  }
}

void Learner::AnnounceLimit() {
  CheckpointedInput* const input = workload_.input();
  if (input == nullptr || config_.limits.max_steps == 0) return;
  input->SetLimit(config_.limits.max_steps - step_);
}

void Learner::AddScalars() {
  size_t next = 0;
  for (const auto& [name, value] : workload_.Scalars()) {
    // they come in the same order nearly always
    if (next >= sums_.size() || sums_[next].name != name) {
      const auto found = std::ranges::find(sums_, name, &ScalarSum::name);
      next = static_cast<size_t>(found - sums_.begin());
      if (found == sums_.end()) sums_.push_back({.name = name});
    }
    ScalarSum& sum = sums_[next];
    // every step repeats the scores of the last evaluation
    if (name.starts_with("evaluation_")) sum = {.name = name};
    sum.sum += value;
    ++sum.count;
    ++next;
  }
}

void Learner::Report(Clock::TimePoint now) {
  const double interval_s = ToSeconds(now - reported_at_);
  const double wait_s = workload_.WaitSeconds();
  Progress progress{.step = step_,
                    .seconds = seconds(),
                    .wait_seconds = wait_s,
                    .wait_reason = wait_reason_,
                    .frames = workload_.NumFrames(),
                    .epochs = workload_.NumEpochs()};
  progress.num_dropped_records = curves_.num_dropped() + lines_.num_dropped();
  progress.num_failed_checkpoints = run_checkpointer_.num_failed();
  if (config_.checkpoint_interval_s > 0.0) {
    progress.checkpoint_age_s =
        ToSeconds(now - run_checkpointer_.completed_at().value_or(*start_));
  }
  if (interval_s > 0.0) {
    progress.steps_per_s =
        static_cast<double>(step_ - reported_step_) / interval_s;
    progress.wait_share = (wait_s - reported_wait_s_) / interval_s;
  }
  const metrics::CurvePoint at{.step = step_, .frames = progress.frames};
  metrics::JsonObject line;
  line.Add("step", step_).Add("seconds", progress.seconds);
  const auto add = [&](const std::string& name, double value) {
    line.Add(name, value);
    curves_.AddScalar("learner/" + name, value, at);
  };
  add("steps_per_s", progress.steps_per_s);
  add("wait_share", progress.wait_share);
  add("frames", static_cast<double>(progress.frames));
  if (progress.epochs) add("epochs", *progress.epochs);
  if (const auto ratio = workload_.ReplayRatio(step_)) {
    add("replay_ratio", *ratio);
  }
  // without a step since the last report the scalars are old, or not computed
  if (step_ > reported_step_) {
    for (const ScalarSum& sum : sums_) {
      add(sum.name, sum.sum / static_cast<double>(sum.count));
    }
    sums_.clear();
    for (const auto& [name, values] : workload_.Histograms()) {
      curves_.AddHistogram("learner/" + name + "_distribution", values, at);
    }
  }
  lines_.Write(line);
  reported_at_ = now;
  reported_step_ = step_;
  reported_wait_s_ = wait_s;
  hooks_.on_progress(progress);
}

void Learner::WritePictures() {
  for (const Picture& picture : workload_.TakePictures()) {
    curves_.by_updates().AddImage("learner/" + picture.name, picture.height,
                                  picture.width, picture.png, step_);
    PostOrRun(disk_, [file = folder_ / picture.name /
                             fmt::format("step-{:012}.png", step_),
                      png = picture.png] {
      try {
        MakeFolders(file.parent_path());
        AtomicWriteFile(file, png);
      } catch (const IoError& error) {
        spdlog::warn("a picture is lost: {}", error.what());
      }
    });
  }
}

void Learner::Publish() {
  if (!parameters_) return;
  const std::vector<std::string> names = workload_.PublishedVariables();
  if (names.empty()) return;
  parameters_->Publish(workload_.PublishedTopic(), static_cast<uint64_t>(step_),
                       runtime::EncodeVariables(workload_.variables(), names,
                                                workload_.PublishedMetadata()));
  published_step_ = step_;
}

}  // namespace replicant::learner
