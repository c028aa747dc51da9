#include "replay/format/chunk_format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "replay/format/frame_codec.h"

namespace replicant::replay {
namespace {

constexpr uint32_t kMagic = 0x31475352;  // "RSG1"
constexpr size_t kHeaderBytes = 32;
constexpr uint16_t kEndsEpisode = 1;
constexpr uint16_t kHasPriorities = 2;

using Bytes = std::span<const std::byte>;

template <typename T>
T Load(Bytes block, size_t offset) {
  T value;
  std::memcpy(&value, block.data() + offset, sizeof(value));
  return value;
}

template <typename T>
void Append(std::vector<std::byte>& block, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  block.insert(block.end(), bytes, bytes + sizeof(value));
}

template <typename T>
void AppendAll(std::vector<std::byte>& block, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  block.insert(block.end(), bytes.begin(), bytes.end());
}

void CheckRow(const char* name, size_t size, int64_t want) {
  if (static_cast<int64_t>(size) != want) {
    throw InvalidArgument(fmt::format(
        "ChunkBuilder: {} has {} bytes, expected {}", name, size, want));
  }
}

// The fault in the numbers of a step; "" if they are valid.
std::string FaultOf(int64_t step, float reward, float discount,
                    std::optional<float> priority) {
  if (!std::isfinite(reward)) {
    return fmt::format("reward {} of step {} is not finite", reward, step);
  }
  if (!(discount >= 0.0f && discount <= 1.0f)) {
    return fmt::format("discount {} of step {} is outside [0, 1]", discount,
                       step);
  }
  if (priority && !IsPriority(static_cast<double>(*priority))) {
    return fmt::format("priority {} of step {} is not finite and >= 0",
                       *priority, step);
  }
  return "";
}

}  // namespace

bool IsPriority(double priority) {
  return std::isfinite(priority) && priority >= 0.0;
}

ChunkBuilder::ChunkBuilder(const StepShape& shape, uint64_t episode,
                           int64_t first_step)
    : shape_(shape), episode_(episode), first_step_(first_step) {
  for (const int64_t size : {shape.observation_bytes, shape.action_bytes}) {
    if (size < 0 || size > kMaxRowBytes) {
      throw InvalidArgument(
          fmt::format("ChunkBuilder: a row of {} bytes is outside [0, {}]",
                      size, kMaxRowBytes));
    }
  }
  if (first_step < 0 || first_step > INT32_MAX) {
    throw InvalidArgument(fmt::format(
        "ChunkBuilder: first_step {} is outside [0, 2^31)", first_step));
  }
}

void ChunkBuilder::AddObservation(Bytes observation) {
  observations_.insert(observations_.end(), observation.begin(),
                       observation.end());
}

void ChunkBuilder::AddStep(Bytes observation, Bytes action, float reward,
                           float discount, std::optional<float> priority) {
  CheckRow("an observation", observation.size(), shape_.observation_bytes);
  CheckRow("an action", action.size(), shape_.action_bytes);
  const std::string fault =
      FaultOf(first_step_ + num_steps(), reward, discount, priority);
  if (!fault.empty()) throw InvalidArgument("ChunkBuilder: " + fault);
  if (ends_episode_ || num_steps() == kMaxChunkSteps) {
    throw InvalidArgument(
        fmt::format("ChunkBuilder: no step fits after {} steps{}", num_steps(),
                    ends_episode_ ? " and the last observation" : ""));
  }
  if (num_steps() > 0 && priority.has_value() == priorities_.empty()) {
    throw InvalidArgument(
        "ChunkBuilder: some steps have a priority and others do not");
  }
  AddObservation(observation);
  actions_.insert(actions_.end(), action.begin(), action.end());
  rewards_.push_back(reward);
  discounts_.push_back(discount);
  if (priority.has_value()) priorities_.push_back(*priority);
}

void ChunkBuilder::AddLastObservation(Bytes observation) {
  CheckRow("an observation", observation.size(), shape_.observation_bytes);
  if (ends_episode_) {
    throw InvalidArgument("ChunkBuilder: a second last observation");
  }
  AddObservation(observation);
  ends_episode_ = true;
}

std::vector<std::byte> ChunkBuilder::Finish(Bytes frames) const {
  if (num_steps() == 0 && !ends_episode_) {
    throw InvalidArgument("ChunkBuilder: a chunk without steps");
  }
  std::vector<std::byte> block;
  block.reserve(kHeaderBytes + 12 * rewards_.size() + observations_.size() +
                actions_.size() + frames.size());
  const auto flags =
      static_cast<uint16_t>((ends_episode_ ? kEndsEpisode : 0) |
                            (priorities_.empty() ? 0 : kHasPriorities));
  Append(block, kMagic);
  Append(block, static_cast<uint16_t>(num_steps()));
  Append(block, flags);
  Append(block, episode_);
  Append(block, static_cast<uint32_t>(first_step_));
  Append(block, static_cast<uint32_t>(shape_.observation_bytes));
  Append(block, static_cast<uint32_t>(shape_.action_bytes));
  Append(block, static_cast<uint32_t>(frames.size()));
  AppendAll<float>(block, rewards_);
  AppendAll<float>(block, discounts_);
  AppendAll<float>(block, priorities_);
  AppendAll<std::byte>(block, observations_);
  AppendAll<std::byte>(block, actions_);
  AppendAll<std::byte>(block, frames);
  return block;
}

ChunkView::ChunkView(Bytes block, const StepShape& shape)
    : block_(block), shape_(shape) {
  if (block.size() < kHeaderBytes || Load<uint32_t>(block, 0) != kMagic) {
    throw IoError(
        fmt::format("chunk: its {} bytes do not begin with the magic "
                    "'RSG1' and a header of {} bytes",
                    block.size(), kHeaderBytes));
  }
  num_steps_ = Load<uint16_t>(block, 4);
  const auto flags = Load<uint16_t>(block, 6);
  ends_episode_ = (flags & kEndsEpisode) != 0;
  has_priorities_ = (flags & kHasPriorities) != 0;
  episode_ = Load<uint64_t>(block, 8);
  first_step_ = Load<uint32_t>(block, 16);
  if (flags > (kEndsEpisode | kHasPriorities) || num_steps_ > kMaxChunkSteps ||
      num_observations() == 0 || first_step_ > INT32_MAX) {
    throw IoError(fmt::format(
        "chunk: flags {}, {} steps and first step {} are not possible", flags,
        num_steps_, first_step_));
  }
  const auto observation_bytes = Load<uint32_t>(block, 20);
  const auto action_bytes = Load<uint32_t>(block, 24);
  if (observation_bytes != shape.observation_bytes ||
      action_bytes != shape.action_bytes) {
    throw IoError(
        fmt::format("chunk: observations of {} bytes and actions of {}, "
                    "expected {} and {}",
                    observation_bytes, action_bytes, shape.observation_bytes,
                    shape.action_bytes));
  }
  const auto steps = static_cast<size_t>(num_steps_);
  observations_begin_ =
      kHeaderBytes + sizeof(float) * steps * (has_priorities_ ? 3 : 2);
  const size_t frames_begin =
      observations_begin_ +
      static_cast<size_t>(num_observations()) * observation_bytes +
      steps * action_bytes;
  const size_t size = frames_begin + Load<uint32_t>(block, 28);
  if (block.size() != size) {
    throw IoError(fmt::format("chunk: has {} bytes, but the header says {}",
                              block.size(), size));
  }
  CheckNumbers();

  if (shape.frame_bytes == 0 && frames().empty()) return;
  const FrameBlockView chunk(frames());
  if (chunk.frame_bytes() != shape.frame_bytes ||
      chunk.num_frames() != num_observations()) {
    throw IoError(fmt::format("chunk: {} frames of {} bytes, expected {} of {}",
                              chunk.num_frames(), chunk.frame_bytes(),
                              num_observations(), shape.frame_bytes));
  }
}

void ChunkView::CheckNumbers() const {
  for (int64_t i = 0; i < num_steps_; ++i) {
    const std::string fault =
        FaultOf(first_step_ + i, reward(i), discount(i),
                has_priorities_ ? std::optional(priority(i)) : std::nullopt);
    if (!fault.empty()) throw IoError("chunk: " + fault);
  }
}

float ChunkView::Float(int64_t column, int64_t i) const {
  REPLICANT_CHECK(i >= 0 && i < num_steps_, "row {} of {}", i, num_steps_);
  return Load<float>(
      block_, kHeaderBytes +
                  sizeof(float) * static_cast<size_t>(column * num_steps_ + i));
}

std::span<const std::byte> ChunkView::Observation(int64_t i) const {
  REPLICANT_CHECK(i >= 0 && i < num_observations(), "row {} of {}", i,
                  num_observations());
  const auto size = static_cast<size_t>(shape_.observation_bytes);
  return block_.subspan(observations_begin_ + static_cast<size_t>(i) * size,
                        size);
}

std::span<const std::byte> ChunkView::Action(int64_t i) const {
  REPLICANT_CHECK(i >= 0 && i < num_steps_, "row {} of {}", i, num_steps_);
  const auto size = static_cast<size_t>(shape_.action_bytes);
  const size_t begin =
      observations_begin_ + static_cast<size_t>(num_observations()) *
                                static_cast<size_t>(shape_.observation_bytes);
  return block_.subspan(begin + static_cast<size_t>(i) * size, size);
}

bool ChunkView::HasFiniteRows() const {
  const Bytes rows =
      block_.subspan(observations_begin_)
          .first(block_.size() - observations_begin_ - frames().size());
  bool is_finite = true;
  for (size_t i = 0; i + sizeof(float) <= rows.size(); i += sizeof(float)) {
    is_finite &= std::isfinite(Load<float>(rows, i));
  }
  return is_finite;
}

std::span<const std::byte> ChunkView::frames() const {
  const auto size = Load<uint32_t>(block_, 28);
  return block_.last(size);
}

}  // namespace replicant::replay
