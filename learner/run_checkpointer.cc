#include "learner/run_checkpointer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"

namespace replicant::learner {
namespace {

using namespace std::chrono_literals;

// Longest wait for batches under way: during training, and at its end, when the
// actors may be gone.
constexpr auto kDrainPatience = 10s;
constexpr auto kLastDrainPatience = 2s;
constexpr auto kPollInterval = 5ms;

}  // namespace

RunCheckpointer::RunCheckpointer(CheckpointFolder* folder, Workload* workload,
                                 std::function<double()> seconds, Clock* clock,
                                 DiskQueue* disk)
    : folder_(*folder),
      workload_(*workload),
      input_(workload->input()),
      run_seconds_(std::move(seconds)),
      clock_(*clock),
      disk_(disk) {}

void RunCheckpointer::ContinueFrom(int64_t step) {
  saved_step_ = step;
  for (const int64_t later : folder_.Steps()) {
    if (later > step) folder_.LeaveOut(later);
  }
}

void RunCheckpointer::Pause() {
  if (input_) input_->SetPaused(true);
  phase_ = Phase::kDraining;
  drain_until_ = clock_.Now() + kDrainPatience;
}

bool RunCheckpointer::IsDrained() const {
  return !input_ || input_->IsDrained() || clock_.Now() >= drain_until_;
}

void RunCheckpointer::Start(int64_t step) {
  if (phase_ == Phase::kIdle && IsWanted(step)) Pause();
}

void RunCheckpointer::Advance(int64_t step) {
  bool has_cut = true;
  const bool is_good = Guard([&] {
    if (phase_ == Phase::kDraining && IsDrained()) has_cut = Cut(step);
    Proceed();
  });
  if (is_good && has_cut) return;
  // behind what the disk may still write of it
  PostOrRun(disk_, [folder = folder_, failed = manifest_.step] {
    folder.Discard(failed);
  });
}

bool RunCheckpointer::Guard(const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    Fail(error.what());
    return false;
  }
}

void RunCheckpointer::Fail(const std::string& why) {
  failure_ = fmt::format("no checkpoint of step {}: {}", manifest_.step, why);
  if (!is_last_) spdlog::error("{}", failure_);
  phase_ = Phase::kIdle;
  ++num_failed_;
}

bool RunCheckpointer::Cut(int64_t step) {
  phase_ = Phase::kIdle;
  // the input continues even if this fails
  struct Unpause {
    CheckpointedInput* input;
    ~Unpause() {
      if (input) input->SetPaused(false);
    }
  } const unpause{input_};
  const Clock::TimePoint begin = clock_.Now();
  manifest_ = {.step = step};  // for the message if the rest fails
  manifest_.id = folder_.NextId();
  manifest_.seconds = run_seconds_();
  manifest_.epochs = workload_.NumEpochs();
  const auto variables = std::make_shared<const runtime::HostVariables>(
      runtime::CopyVariables(workload_.variables()));
  writing_ = PostOrRun(
      disk_, [folder = folder_, variables,
              info = runtime::CheckpointInfo{
                  .step = step, .metadata = workload_.State()}]() mutable {
        folder.Save(*variables, info);
      });
  phase_ = Phase::kWriting;
  // without a queue, StartSaving() finds the folder
  if (disk_ == nullptr) writing_.get();
  const bool has_started = Guard([&] {
    if (input_) input_->StartSaving(manifest_.id, folder_.PathOf(step));
  });
  cut_at_ = clock_.Now();
  cut_seconds_ = ToSeconds(cut_at_ - begin);
  return has_started;
}

void RunCheckpointer::Proceed() {
  // a future whose result was taken is no longer valid
  const auto is_written = [this] {
    if (!writing_.valid()) return true;
    if (!IsDone(writing_)) return false;
    writing_.get();
    return true;
  };
  if (phase_ == Phase::kWriting && is_written()) phase_ = Phase::kSaving;
  if (phase_ == Phase::kSaving) {
    const auto state =
        input_ ? input_->PollSaved() : replay::CheckpointState::kNotKept;
    if (state == replay::CheckpointState::kPending) return;
    manifest_.has_input = state == replay::CheckpointState::kSaved;
    writing_ =
        PostOrRun(disk_, [folder = folder_, manifest = manifest_]() mutable {
          folder.Complete(manifest);
        });
    phase_ = Phase::kCompleting;
  }
  if (phase_ != Phase::kCompleting || !is_written()) return;
  phase_ = Phase::kIdle;
  saved_step_ = manifest_.step;
  completed_at_ = clock_.Now();
  num_failed_ = 0;
  spdlog::info(
      "checkpoint {} of step {}: stood still for {:.3f} s, complete after "
      "{:.3f} s",
      manifest_.id, manifest_.step, cut_seconds_,
      cut_seconds_ + ToSeconds(*completed_at_ - cut_at_));
}

void RunCheckpointer::AwaitLearnersPart(Clock::TimePoint deadline) {
  while (writing_.valid()) {
    if (IsDone(writing_)) return writing_.get();
    if (clock_.Now() >= deadline) {
      throw IoError(fmt::format("the disk has stalled; {} is not written",
                                folder_.PathOf(manifest_.step).string()));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

void RunCheckpointer::AwaitEnd(Clock::TimePoint deadline) {
  while (phase_ != Phase::kIdle && phase_ != Phase::kDraining) {
    if (!Guard([&] { Proceed(); }) || phase_ == Phase::kIdle) return;
    if (clock_.Now() >= deadline) {
      Fail(fmt::format("the {} is not saved after {:.0f} s",
                       phase_ == Phase::kSaving ? "input" : "learner's part",
                       ToSeconds(kLastSavePatience)));
      return;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

std::string RunCheckpointer::SaveLast(
    int64_t step, const std::function<std::optional<int64_t>()>& take_step) {
  const Clock::TimePoint deadline = clock_.Now() + kLastSavePatience;
  AwaitEnd(deadline);
  if (!IsWanted(step)) return "";
  is_last_ = true;
  failure_.clear();
  Pause();
  drain_until_ = std::min(deadline, clock_.Now() + kLastDrainPatience);
  while (!IsDrained()) {
    const std::optional<int64_t> next = take_step();
    if (!next) break;
    step = *next;
  }
  const bool is_written = Guard([&] {
    static_cast<void>(Cut(step));
    AwaitLearnersPart(deadline);
  });
  if (is_written) AwaitEnd(deadline);
  return failure_;
}

}  // namespace replicant::learner
