#include "learner/run_checkpointer.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace replicant::learner {
namespace {

using namespace std::chrono_literals;

// Longest wait for batches under way: during training, and at its end, when the
// actors may be gone.
constexpr auto kDrainPatience = 10s;
constexpr auto kLastDrainPatience = 2s;
// Below the time that the fleet gives a role to end.
constexpr auto kLastSavePatience = 45s;
constexpr auto kPollInterval = 5ms;

}  // namespace

RunCheckpointer::RunCheckpointer(CheckpointFolder* folder, Workload* workload,
                                 std::function<double()> seconds, Clock* clock)
    : folder_(*folder),
      workload_(*workload),
      input_(workload->input()),
      run_seconds_(std::move(seconds)),
      clock_(*clock) {}

bool RunCheckpointer::IsWanted(int64_t step) const {
  return step > 0 && !folder_.IsComplete(step);
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
  const bool is_good = Guard([&] {
    if (phase_ == Phase::kDraining && IsDrained()) Cut(step);
    if (phase_ == Phase::kSaving) TryComplete();
  });
  if (!is_good) folder_.Discard(manifest_.step);
}

bool RunCheckpointer::Guard(const std::function<void()>& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    spdlog::error("no checkpoint of step {}: {}", manifest_.step, error.what());
    phase_ = Phase::kIdle;
    return false;
  }
}

void RunCheckpointer::Cut(int64_t step) {
  phase_ = Phase::kIdle;
  // the input goes on even if this fails
  struct Unpause {
    CheckpointedInput* input;
    ~Unpause() {
      if (input) input->SetPaused(false);
    }
  } const unpause{input_};
  const Clock::TimePoint begin = clock_.Now();
  manifest_ = {.step = step, .id = folder_.NextId(), .seconds = run_seconds_()};
  folder_.Save(workload_.variables(),
               {.step = step, .metadata = workload_.State()});
  if (input_) input_->StartSaving(manifest_.id, folder_.PathOf(step));
  cut_at_ = clock_.Now();
  cut_seconds_ = ToSeconds(cut_at_ - begin);
  phase_ = Phase::kSaving;
}

void RunCheckpointer::TryComplete() {
  const auto state =
      input_ ? input_->PollSaved() : replay::CheckpointState::kNotKept;
  if (state == replay::CheckpointState::kPending) return;
  manifest_.has_input = state == replay::CheckpointState::kSaved;
  folder_.Complete(manifest_);
  phase_ = Phase::kIdle;
  spdlog::info(
      "checkpoint {} of step {}: stood still for {:.3f} s, complete after "
      "{:.3f} s",
      manifest_.id, manifest_.step, cut_seconds_,
      cut_seconds_ + ToSeconds(clock_.Now() - cut_at_));
}

void RunCheckpointer::AwaitInputPart() {
  const Clock::TimePoint deadline = clock_.Now() + kLastSavePatience;
  while (phase_ == Phase::kSaving) {
    Guard([&] { TryComplete(); });
    if (phase_ != Phase::kSaving) return;
    if (clock_.Now() >= deadline) {
      spdlog::error(
          "no checkpoint of step {}: the input is not saved after {} s",
          manifest_.step, kLastSavePatience.count());
      phase_ = Phase::kIdle;
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

void RunCheckpointer::SaveLast(
    int64_t step, const std::function<std::optional<int64_t>()>& take_step) {
  AwaitInputPart();
  if (!IsWanted(step)) return;
  Pause();
  drain_until_ = clock_.Now() + kLastDrainPatience;
  while (!IsDrained()) {
    const std::optional<int64_t> next = take_step();
    if (!next) break;
    step = *next;
  }
  Cut(step);
  AwaitInputPart();
}

}  // namespace replicant::learner
