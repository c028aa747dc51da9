// chunks_ is the window of the open episode that future items need: from the
// chunk with the oldest frame of the stack of o_{next_step_} to the newest
// chunk. Append() extends it at the end, makes the items whose last observation
// has come, and drops the chunks in front that no later item needs.
#include "replay/table/n_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "replay/table/n_step_return.h"

namespace replicant::replay {

std::string WhyRefused(const NStepConfig& config) {
  if (config.n_step < 1 || config.n_step > kMaxNStep) {
    return fmt::format("n_step {} is outside [1, {}]", config.n_step,
                       kMaxNStep);
  }
  if (config.stack < 1 || config.stack > kMaxStack) {
    return fmt::format("stack {} is outside [1, {}]", config.stack, kMaxStack);
  }
  if (!(config.discount >= 0.0 && config.discount <= 1.0)) {
    return fmt::format("discount {} is outside [0, 1]", config.discount);
  }
  if (config.window < 0 || config.window > kMaxWindow) {
    return fmt::format("window {} is outside [0, {}]", config.window,
                       kMaxWindow);
  }
  if (config.window > 0 && config.n_step > config.window) {
    return fmt::format(
        "n_step {} is outside [1, window {}]: a reader computes n-step returns "
        "from the steps in a window",
        config.n_step, config.window);
  }
  if (config.window == 0 && config.period != 1) {
    return fmt::format("period {} without a window", config.period);
  }
  if (config.period < 1 || config.period > config.max_steps()) {
    return fmt::format(
        "period {} is outside [1, window {}]: there must be no gaps between "
        "windows",
        config.period, config.window);
  }
  return "";
}

std::string ToString(const NStepConfig& config) {
  const std::string steps =
      config.window > 0
          ? fmt::format("window {}, period {}, ", config.window, config.period)
          : "";
  return fmt::format("{}n_step {}, discount {} and stack {}", steps,
                     config.n_step, config.discount, config.stack);
}

NStepAssembler::NStepAssembler(const NStepConfig& config, FrameStore* store)
    : config_(config), store_(store) {
  const std::string why = WhyRefused(config);
  if (!why.empty()) throw InvalidArgument(why);
}

NStepAssembler::NStepAssembler(NStepAssembler&& other) noexcept
    : config_(other.config_),
      store_(other.store_),
      chunks_(std::exchange(other.chunks_, {})),
      next_step_(other.next_step_) {}

int64_t NStepAssembler::WindowBegin(int64_t step) const {
  return std::max<int64_t>(0, step - config_.stack + 1);
}

void NStepAssembler::AddChunk(StoredChunk& chunk) {
  store_->Use(chunk);
  chunks_.push_back(&chunk);
}

void NStepAssembler::Append(StoredChunk& chunk, std::vector<NStepItem>* items) {
  if (chunks_.empty()) {
    REPLICANT_CHECK_EQ(chunk.view().first_step(), 0);
    next_step_ = 0;
  } else {
    REPLICANT_CHECK_EQ(chunk.view().first_step(),
                       chunks_.back()->view().end_observation());
  }
  AddChunk(chunk);

  // whole items, then the shorter ones at the end of the episode
  const int64_t last_observation = chunk.view().end_observation() - 1;
  const int64_t max_steps = config_.max_steps();
  for (; next_step_ + max_steps <= last_observation;
       next_step_ += config_.period) {
    items->push_back(MakeItem(max_steps));
  }
  if (chunk.view().ends_episode()) {
    for (; next_step_ < last_observation; next_step_ += config_.period) {
      items->push_back(MakeItem(last_observation - next_step_));
    }
  }
  if (chunk.view().ends_episode()) {
    Reset();
  } else {
    DropOldChunks();
  }
}

NStepItem NStepAssembler::MakeItem(int64_t n) const {
  const int64_t begin = WindowBegin(next_step_);
  const int64_t last = next_step_ + n;
  // chunks that hold an observation of [begin, last]
  size_t first = 0;
  while (chunks_[first]->view().end_observation() <= begin) ++first;
  size_t end = first;
  while (chunks_[end]->view().end_observation() <= last) ++end;

  NStepItem item;
  item.first = chunks_[first];
  item.num_chunks = static_cast<int64_t>(end - first) + 1;
  item.step = next_step_;
  item.n = n;
  NStepReturn n_step(config_.discount);
  size_t g = first;
  for (int64_t step = next_step_; step < last; ++step) {
    while (chunks_[g]->view().end_observation() <= step) ++g;
    const ChunkView& view = chunks_[g]->view();
    const int64_t row = step - view.first_step();
    if (step == next_step_ && view.has_priorities()) {
      item.priority = view.priority(row);
    }
    n_step.Add(view.reward(row), view.discount(row));
  }
  item.reward = n_step.reward();
  item.discount = n_step.discount();
  store_->UseRange(*item.first, item.num_chunks);
  return item;
}

void NStepAssembler::DropOldChunks() {
  const int64_t begin = WindowBegin(next_step_);
  const auto is_needed = [begin](const StoredChunk* chunk) {
    return chunk->view().end_observation() > begin;
  };
  const auto needed = std::find_if(chunks_.begin(), chunks_.end(), is_needed);
  // the last chunk stays: the next chunk is linked to it
  const auto end = std::min(needed, std::prev(chunks_.end()));
  std::for_each(chunks_.begin(), end,
                [this](StoredChunk* chunk) { store_->Release(*chunk); });
  chunks_.erase(chunks_.begin(), end);
}

void NStepAssembler::Reset() {
  for (StoredChunk* chunk : chunks_) store_->Release(*chunk);
  chunks_.clear();
  next_step_ = 0;
}

int64_t NStepAssembler::num_open_steps() const {
  if (chunks_.empty()) return 0;
  const ChunkView& last = chunks_.back()->view();
  return last.first_step() + last.num_steps() - next_step_;
}

void NStepAssembler::Restore(const std::vector<StoredChunk*>& chunks,
                             int64_t next_step) {
  REPLICANT_CHECK(chunks_.empty(), "an episode is open");
  for (StoredChunk* chunk : chunks) AddChunk(*chunk);
  next_step_ = next_step;
}

}  // namespace replicant::replay
