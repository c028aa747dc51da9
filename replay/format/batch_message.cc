// The reader checks the header completely; segments are checked against the
// steps that the item needs before any is decoded.
#include "replay/format/batch_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "replay/format/protocol.h"

namespace replicant::replay {
namespace {

using rpc::MalformedMessage;
using rpc::WireReader;

constexpr std::string_view kSampleReply = "replay.sample reply";
// Maximum number of chunks of one item: its steps and its stack, with one step
// per chunk.
constexpr uint32_t kMaxSegmentsPerItem =
    std::max(kMaxNStep, kMaxWindow) + kMaxStack + 1;
// Maximum number of frames that an item holds.
constexpr int64_t kMaxFramesPerItem =
    std::max(kMaxWindow, kMaxStack) + kMaxStack;

// Reads a column and checks that it is as long as the others.
template <typename T>
std::vector<T> ReadColumn(WireReader& reader, std::string_view field,
                          size_t size) {
  std::vector<T> column =
      reader.ReadArray<T>(field, static_cast<uint32_t>(size));
  if (column.size() != size) {
    throw MalformedMessage(
        fmt::format("{}: field '{}' has {} elements, expected {}", kSampleReply,
                    field, column.size(), size));
  }
  return column;
}

}  // namespace

BatchMessage::BatchMessage(rpc::Message payload, const StepShape& shape,
                           const BatchTarget* target,
                           const FindFrameBlock& find_kept)
    : payload_(std::move(payload)), shape_(shape) {
  rpc::CheckNumParts(kSampleReply, payload_, 3);
  ReadColumns();
  if (target == nullptr && (are_rows_in_memory_ || are_segments_in_memory_)) {
    throw MalformedMessage(
        fmt::format("{}: refers to memory that was not offered", kSampleReply));
  }
  if (target != nullptr) memory_ = target->memory;
  FindRows(target);
  FindSegments(target);
  FindKept(find_kept);
  CheckSegments();
}

void BatchMessage::FindKept(const FindFrameBlock& find_kept) {
  for (Segment& segment : segments_) {
    num_frames_ += segment.num_frames;
    if (segment.size > 0) continue;
    num_kept_frames_ += segment.num_frames;
    if (find_kept) segment.kept = find_kept(segment.serial);
    if (segment.kept.bytes.empty()) {
      throw MissingFrames(
          fmt::format("{}: names the frames of chunk {}, which are not kept",
                      kSampleReply, segment.serial));
    }
  }
  if (shape_.frame_bytes == 0) return;
  for (size_t i = 0; i < items_.size(); ++i) {
    const size_t begin = i == 0 ? 0 : segment_ends_[i - 1];
    if (begin < segment_ends_[i]) continue;
    const auto [first, second] =
        form_.NeededFrames(items_[i].step, items_[i].n);
    num_frames_ += first.end - first.begin + second.end -
                   std::max(first.end, second.begin);
  }
}

void BatchMessage::FindRows(const BatchTarget* target) {
  const size_t count = items_.size();
  const auto bytes_of = [count](int64_t row_bytes) {
    return count * static_cast<size_t>(row_bytes);
  };
  if (are_rows_in_memory_) {
    try {
      target->Check(static_cast<uint32_t>(count), shape_, form_);
    } catch (const InvalidArgument& e) {
      throw MalformedMessage(fmt::format("{}: {}", kSampleReply, e.what()));
    }
    const auto rows = [&](uint64_t array, int64_t row_bytes) {
      return std::span<const std::byte>(target->Rows(array, row_bytes),
                                        bytes_of(row_bytes));
    };
    const BatchPlace& place = target->place;
    observations_ = rows(place.observations, row_bytes_.observations);
    next_observations_ =
        rows(place.next_observations, row_bytes_.next_observations);
    actions_ = rows(place.actions, row_bytes_.actions);
    frames_ = rows(place.frames, row_bytes_.frames);
    next_frames_ = rows(place.next_frames, row_bytes_.next_frames);
  }
  const size_t next_begin = bytes_of(row_bytes_.observations);
  const size_t actions_begin =
      next_begin + bytes_of(row_bytes_.next_observations);
  const size_t size =
      are_rows_in_memory_ ? 0 : actions_begin + bytes_of(row_bytes_.actions);
  if (payload_[1].size() != size) {
    throw MalformedMessage(fmt::format("{}: {} bytes of rows, expected {}",
                                       kSampleReply, payload_[1].size(), size));
  }
  if (are_rows_in_memory_) return;
  const std::span<const std::byte> rows = payload_[1].bytes();
  observations_ = rows.first(next_begin);
  next_observations_ = rows.subspan(next_begin, actions_begin - next_begin);
  actions_ = rows.subspan(actions_begin);
}

void BatchMessage::FindSegments(const BatchTarget* target) {
  const size_t size = are_segments_in_memory_ ? 0 : segments_bytes_;
  if (payload_[2].size() != size ||
      (are_segments_in_memory_ &&
       segments_bytes_ > target->place.segments_bytes)) {
    throw MalformedMessage(
        fmt::format("{}: {} bytes of segments, {} of them in part 2",
                    kSampleReply, segments_bytes_, payload_[2].size()));
  }
  segment_data_ = are_segments_in_memory_
                      ? target->memory->bytes().subspan(target->place.segments,
                                                        segments_bytes_)
                      : payload_[2].bytes();
}

void BatchMessage::ReadForm(WireReader& reader) {
  const auto read = [&reader](const char* field, int64_t low, int64_t high) {
    const int64_t value = reader.Read<uint32_t>(field);
    if (value >= low && value <= high) return value;
    throw MalformedMessage(fmt::format("{}: field '{}': {} is outside [{}, {}]",
                                       kSampleReply, field, value, low, high));
  };
  form_.stack = read("stack", 1, kMaxStack);
  form_.window = read("window", 0, kMaxWindow);
  row_bytes_ = form_.BytesOf(shape_);
}

void BatchMessage::ReadColumns() {
  WireReader reader(kSampleReply, payload_[0].bytes());
  const auto state = reader.Read<uint8_t>("state");
  if (state > static_cast<uint8_t>(BatchState::kClosed)) {
    throw MalformedMessage(fmt::format("{}: field 'state': unknown state {}",
                                       kSampleReply, state));
  }
  state_ = static_cast<BatchState>(state);
  table_size_ = static_cast<int64_t>(reader.Read<uint64_t>("table_size"));
  table_mass_ = reader.Read<double>("table_mass");
  total_steps_ = static_cast<int64_t>(reader.Read<uint64_t>("total_steps"));
  ReadForm(reader);
  are_rows_in_memory_ = reader.ReadBool("rows_in_memory");
  are_segments_in_memory_ = reader.ReadBool("segments_in_memory");
  const auto slots = reader.ReadArray<uint32_t>("slot", kMaxItemsPerBatch);
  const size_t count = slots.size();
  const auto generations = ReadColumn<uint32_t>(reader, "generation", count);
  const auto probabilities = ReadColumn<double>(reader, "probability", count);
  const auto priorities = ReadColumn<float>(reader, "priority", count);
  const auto rewards = ReadColumn<float>(reader, "reward", count);
  const auto discounts = ReadColumn<float>(reader, "discount", count);
  const auto times = ReadColumn<uint32_t>(reader, "times_sampled", count);
  const auto ages = ReadColumn<uint64_t>(reader, "age", count);
  const auto steps = ReadColumn<uint32_t>(reader, "step", count);
  const auto ns = ReadColumn<uint32_t>(reader, "n", count);
  const auto num_segments = ReadColumn<uint32_t>(reader, "num_segments", count);
  items_.reserve(count);
  segment_ends_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t max_n = form_.HasWindows() ? form_.window : kMaxNStep;
    if (steps[i] > INT32_MAX || ns[i] > max_n) {
      throw MalformedMessage(fmt::format("{}: item {} at step {} with n = {}",
                                         kSampleReply, i, steps[i], ns[i]));
    }
    items_.push_back({.key = {slots[i], generations[i]},
                      .probability = probabilities[i],
                      .priority = priorities[i],
                      .reward = rewards[i],
                      .discount = discounts[i],
                      .times_sampled = times[i],
                      .age = static_cast<int64_t>(ages[i]),
                      .step = steps[i],
                      .n = ns[i]});
    if (num_segments[i] > kMaxSegmentsPerItem) {
      throw MalformedMessage(
          fmt::format("{}: item {} has {} segments; at most {} are allowed",
                      kSampleReply, i, num_segments[i], kMaxSegmentsPerItem));
    }
    segment_ends_.push_back((i == 0 ? 0 : segment_ends_[i - 1]) +
                            num_segments[i]);
  }

  const size_t num_steps = count * static_cast<size_t>(form_.window);
  step_rewards_ = ReadColumn<float>(reader, "step_reward", num_steps);
  step_discounts_ = ReadColumn<float>(reader, "step_discount", num_steps);

  const size_t total = count == 0 ? 0 : segment_ends_.back();
  const auto first_steps = ReadColumn<uint32_t>(reader, "first_step", total);
  const auto num_frames = ReadColumn<uint32_t>(reader, "num_frames", total);
  const auto skips = ReadColumn<uint32_t>(reader, "skip", total);
  const auto sizes = ReadColumn<uint32_t>(reader, "segment_bytes", total);
  const auto serials = ReadColumn<uint64_t>(reader, "serial", total);
  reader.Finish();
  segments_.reserve(total);
  for (size_t i = 0; i < total; ++i) {
    segments_.push_back({first_steps[i],
                         num_frames[i],
                         skips[i],
                         segments_bytes_,
                         sizes[i],
                         serials[i],
                         {}});
    segments_bytes_ += sizes[i];
  }
}

// The segments of each item hold every frame that it needs, in order.
void BatchMessage::CheckSegments() const {
  if (shape_.frame_bytes == 0) {
    if (segments_.empty()) return;
    throw MalformedMessage(fmt::format("{}: {} segments without pixels",
                                       kSampleReply, segments_.size()));
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    const SampledItem& item = items_[i];
    size_t next = i == 0 ? 0 : segment_ends_[i - 1];
    // its frames are in shared memory
    if (are_rows_in_memory_ && next == segment_ends_[i]) continue;
    const auto is_covered = [&](int64_t begin, int64_t end) {
      while (begin < end && next < segment_ends_[i]) {
        const Segment& segment = segments_[next];
        if (segment.num_frames > kMaxBlockFrames ||
            segment.first_step > begin) {
          return false;
        }
        begin = std::max(begin, segment.first_step + segment.num_frames);
        if (begin < end) ++next;
      }
      return begin >= end;
    };
    const auto [first, second] = form_.NeededFrames(item.step, item.n);
    if (!is_covered(first.begin, first.end) ||
        !is_covered(std::max(first.end, second.begin), second.end)) {
      throw MalformedMessage(
          fmt::format("{}: the segments of item {} do not hold all its frames",
                      kSampleReply, i));
    }
  }
}

std::span<const std::byte> BatchMessage::RowOf(std::span<const std::byte> rows,
                                               int64_t index,
                                               int64_t row_bytes) const {
  REPLICANT_CHECK(index >= 0 && index < size(), "item {} of {}", index, size());
  return rows.subspan(static_cast<size_t>(index * row_bytes),
                      static_cast<size_t>(row_bytes));
}

std::span<const std::byte> BatchMessage::Observation(int64_t index) const {
  return RowOf(observations_, index, row_bytes_.observations);
}

std::span<const std::byte> BatchMessage::NextObservation(int64_t index) const {
  return RowOf(next_observations_, index, row_bytes_.next_observations);
}

std::span<const std::byte> BatchMessage::Action(int64_t index) const {
  return RowOf(actions_, index, row_bytes_.actions);
}

std::span<const float> BatchMessage::StepRewards(int64_t index) const {
  return StepsOf(step_rewards_, index);
}

std::span<const float> BatchMessage::StepDiscounts(int64_t index) const {
  return StepsOf(step_discounts_, index);
}

std::span<const float> BatchMessage::StepsOf(const std::vector<float>& steps,
                                             int64_t index) const {
  REPLICANT_CHECK(index >= 0 && index < size(), "item {} of {}", index, size());
  const auto window = static_cast<size_t>(form_.window);
  return std::span(steps).subspan(static_cast<size_t>(index) * window, window);
}

FrameBlockView BatchMessage::BlockOf(const Segment& segment) const {
  const FrameBlockView block(
      segment.kept.bytes.empty()
          ? segment_data_.subspan(segment.offset, segment.size)
          : segment.kept.bytes);
  if (block.frame_bytes() != shape_.frame_bytes ||
      segment.skip + segment.num_frames > block.num_frames()) {
    throw MalformedMessage(fmt::format(
        "{}: a segment with frames [{}, {}) holds {} of {} bytes", kSampleReply,
        segment.skip, segment.skip + segment.num_frames, block.num_frames(),
        block.frame_bytes()));
  }
  return block;
}

ItemFrames BatchMessage::LocateFrames(int64_t index, FrameRoom& room,
                                      std::span<std::byte> frames,
                                      std::span<std::byte> next_frames) const {
  REPLICANT_CHECK(index >= 0 && index < size(), "item {} of {}", index, size());
  REPLICANT_CHECK_EQ(static_cast<int64_t>(frames.size()), row_bytes_.frames);
  REPLICANT_CHECK_EQ(static_cast<int64_t>(next_frames.size()),
                     row_bytes_.next_frames);
  const auto i = static_cast<size_t>(index);
  const auto frame_bytes = static_cast<size_t>(shape_.frame_bytes);
  const auto num_frames = static_cast<size_t>(form_.num_frames());
  const size_t num_places = num_frames + next_frames.size() / frame_bytes;
  const auto result_of = [&](std::span<const std::byte* const> all_places,
                             std::span<const uint64_t> all_numbers) {
    return ItemFrames{
        all_places.first(num_frames), all_places.subspan(num_frames),
        all_numbers.first(num_frames), all_numbers.subspan(num_frames)};
  };
  if (!places_.empty()) {
    return result_of(std::span(places_).subspan(i * num_places, num_places),
                     std::span(numbers_).subspan(i * num_places, num_places));
  }
  room.places.resize(num_places);
  room.numbers.assign(num_places, 0);
  const std::span places(room.places);
  const std::span numbers(room.numbers);
  const ItemFrames result = result_of(places, numbers);
  const size_t begin = i == 0 ? 0 : segment_ends_[i - 1];
  if (begin == segment_ends_[i]) {
    // the service has written the rows
    const auto row = RowOf(frames_, index, row_bytes_.frames);
    const auto next_row = RowOf(next_frames_, index, row_bytes_.next_frames);
    for (size_t j = 0; j < num_places; ++j) {
      places[j] = j < num_frames
                      ? row.data() + j * frame_bytes
                      : next_row.data() + (j - num_frames) * frame_bytes;
    }
    return result;
  }

  // the needed steps in order, each with its place in the rows
  struct Wanted {
    int64_t step;
    size_t place;
    std::byte* out;
  };
  Wanted wanted[kMaxFramesPerItem];
  size_t num_wanted = 0;
  const SampledItem& item = items_[i];
  const auto want = [&](int64_t step, bool is_next, int64_t j) {
    const auto at = static_cast<size_t>(j);
    wanted[num_wanted++] = {
        step, at + (is_next ? num_frames : 0),
        (is_next ? next_frames : frames).data() + at * frame_bytes};
  };
  form_.ForEachFrame(item.step, item.n, want);
  std::sort(wanted, wanted + num_wanted,
            [](const Wanted& a, const Wanted& b) { return a.step < b.step; });
  const auto num_zero = static_cast<size_t>(form_.NumZeroFrames(item.n));
  std::ranges::fill(frames.last(num_zero * frame_bytes), std::byte{0});
  for (size_t j = num_frames - num_zero; j < num_frames; ++j) {
    places[j] = frames.data() + j * frame_bytes;
  }

  const Wanted* next = wanted;
  const Wanted* const end = wanted + num_wanted;
  std::vector<FrameDecoder::Target> targets;
  for (size_t s = begin; s < segment_ends_[i]; ++s) {
    const Segment& segment = segments_[s];
    const FrameBlockView block = BlockOf(segment);
    targets.clear();
    for (; next != end && next->step < segment.first_step + segment.num_frames;
         ++next) {
      const int64_t at = segment.skip + next->step - segment.first_step;
      if (segment.kept.first_number > 0) {
        numbers[next->place] =
            segment.kept.first_number + static_cast<uint64_t>(at);
      }
      if (block.codec() == FrameCodec::kNone) {
        places[next->place] = block.Payload(at).data();
      } else {
        places[next->place] = next->out;
        targets.push_back({at, next->out});
      }
    }
    room.decoder.Decode(block, targets);
  }
  return result;
}

void BatchMessage::DecodeFrames(FrameRoom& room) {
  const auto frame_bytes = static_cast<size_t>(shape_.frame_bytes);
  const auto num_first = static_cast<size_t>(row_bytes_.frames);
  room.bytes.resize(num_first + static_cast<size_t>(row_bytes_.next_frames));
  const std::span<std::byte> bytes(room.bytes);
  std::vector<const std::byte*> places;
  std::vector<uint64_t> numbers;
  for (int64_t i = 0; i < size(); ++i) {
    LocateFrames(i, room, bytes.first(num_first), bytes.subspan(num_first));
    const auto is_decoded = [&](const std::byte* place) {
      return std::less_equal<>()(bytes.data(), place) &&
             std::less<>()(place, bytes.data() + bytes.size());
    };
    const auto count =
        static_cast<size_t>(std::ranges::count_if(room.places, is_decoded));
    if (count > 0) {
      // the room is the next item's
      std::byte* to =
          decoded_
              .emplace_back(std::make_unique_for_overwrite<std::byte[]>(
                  count * frame_bytes))
              .get();
      for (const std::byte*& place : room.places) {
        if (!is_decoded(place)) continue;
        std::memcpy(to, place, frame_bytes);
        place = std::exchange(to, to + frame_bytes);
      }
    }
    places.insert(places.end(), room.places.begin(), room.places.end());
    numbers.insert(numbers.end(), room.numbers.begin(), room.numbers.end());
  }
  places_ = std::move(places);
  numbers_ = std::move(numbers);
}

}  // namespace replicant::replay
