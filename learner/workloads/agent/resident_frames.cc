#include "learner/workloads/agent/resident_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace replicant::learner {
namespace {

// Slots are i32.
int64_t NumStaying(const ResidentFrames::Options& options) {
  return std::min(
      options.max_bytes / options.frame_bytes,
      std::numeric_limits<int32_t>::max() - options.frames_per_batch);
}

}  // namespace

ResidentFrames::ResidentFrames(kernels::Backend& backend,
                               const Options& options)
    : options_(options),
      num_staying_(NumStaying(options)),
      type_{DType::kU8, Shape({num_staying_ + options.frames_per_batch,
                               options.frame_bytes})},
      copied_(backend.CreateEvent()),
      slots_(static_cast<size_t>(num_staying_)) {
  try {
    table_ = backend.Allocate(type_.SizeBytes());
  } catch (const DeviceError& e) {
    throw DeviceError(
        fmt::format("{}; it was to hold the frames of "
                    "learner.frame_store.max_bytes, {}",
                    e.what(), options.max_bytes));
  }
  waiting_ = backend.AllocateHost(
      static_cast<size_t>(options.frames_per_batch * options.frame_bytes));
  slot_of_.reserve(slots_.size());
}

ResidentFrames::~ResidentFrames() {
  if (!is_copying_) return;
  try {
    copied_->Synchronize();
  } catch (const DeviceError&) {
    // the failure has been reported
  }
}

void ResidentFrames::BeginBatch() {
  if (is_copying_) copied_->Synchronize();
  is_copying_ = false;
  const MutexLock lock(mutex_);
  ++batch_;
  for (const Run& run : runs_) {
    for (int64_t i = 0; i < run.count; ++i) {
      Slot& slot = slots_[static_cast<size_t>(run.first_slot + i)];
      slot_of_.erase(slot.number);
      slot.number = 0;
    }
  }
  runs_.clear();
  num_waiting_ = 0;
  num_spare_ = 0;
}

int64_t ResidentFrames::TakeSlot(uint64_t number) {
  for (size_t tried = 0; tried < slots_.size(); ++tried) {
    const size_t at = next_slot_;
    next_slot_ = (next_slot_ + 1) % slots_.size();
    Slot& slot = slots_[at];
    if (slot.batch == batch_) continue;
    if (slot.number > 0) slot_of_.erase(slot.number);
    slot = {.number = number, .batch = batch_};
    slot_of_[number] = static_cast<int32_t>(at);
    return static_cast<int64_t>(at);
  }
  return -1;
}

int32_t ResidentFrames::SlotOf(uint64_t number, const std::byte* frame) {
  int64_t slot = -1;
  int64_t waiting = 0;
  {
    const MutexLock lock(mutex_);
    if (number > 0) {
      const auto found = slot_of_.find(number);
      if (found != slot_of_.end()) {
        slots_[static_cast<size_t>(found->second)].batch = batch_;
        return found->second;
      }
      slot = TakeSlot(number);
    }
    REPLICANT_CHECK(num_waiting_ + num_spare_ < options_.frames_per_batch,
                    "more than {} frames of a batch",
                    options_.frames_per_batch);
    if (slot < 0) {
      ++num_spare_;
      slot = type_.shape[0] - num_spare_;
      waiting = options_.frames_per_batch - num_spare_;
    } else {
      waiting = num_waiting_++;
      const bool continues =
          !runs_.empty() &&
          runs_.back().first_slot + runs_.back().count == slot;
      if (continues) {
        ++runs_.back().count;
      } else {
        runs_.push_back({slot, waiting, 1});
      }
    }
  }
  std::memcpy(WaitingAt(waiting), frame,
              static_cast<size_t>(options_.frame_bytes));
  return static_cast<int32_t>(slot);
}

void ResidentFrames::Send(kernels::Stream& stream, const Run& run) {
  is_copying_ = true;
  stream.CopyToDevice(data() + run.first_slot * options_.frame_bytes,
                      WaitingAt(run.first_waiting),
                      static_cast<size_t>(run.count * options_.frame_bytes));
  num_sent_ += run.count;
}

void ResidentFrames::Update(kernels::Stream& stream) {
  const MutexLock lock(mutex_);
  if (num_waiting_ + num_spare_ == 0) return;
  try {
    for (const Run& run : runs_) Send(stream, run);
    if (num_spare_ > 0) {
      Send(stream, {type_.shape[0] - num_spare_,
                    options_.frames_per_batch - num_spare_, num_spare_});
    }
    stream.Record(*copied_);
  } catch (...) {
    // nothing marks the end of these copies
    stream.Synchronize();
    throw;
  }
  runs_.clear();
  num_waiting_ = 0;
  num_spare_ = 0;
}

}  // namespace replicant::learner
