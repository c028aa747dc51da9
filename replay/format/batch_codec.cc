// A message has three parts: a header with the columns of the items, the rows,
// and the segments. EncodeBatch() goes through the items once to copy their
// rows and once to plan their frames.
//
// A segment is cut from one frame group of an item: the frames from the first
// to the last that its two stacks need, still compressed. With a target in
// shared memory, items whose groups are not compressed need no segments: their
// frames are copied to their stacks, one after the other with prefetching.
//
// The reader checks the header completely; segments are checked against the
// steps that the stacks need before any is decoded.
#include "replay/format/batch_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/rpc/wire.h"

namespace replicant::replay {
namespace {

using rpc::MalformedMessage;
using rpc::WireReader;
using rpc::WireWriter;

constexpr std::string_view kName = "replay.sample reply";
// Maximum number of groups of one item: its steps and its stack, with one step
// per group.
constexpr uint32_t kMaxSegmentsPerItem = kMaxNStep + kMaxStack + 1;

// The first step of the stack of o_end.
int64_t StackBegin(int64_t end, int64_t stack) {
  return std::max<int64_t>(0, end - stack + 1);
}

// A range of frames of one group that an item needs.
struct Cut {
  FrameGroupView frames;
  int64_t first_step;  // of the group
  int64_t first;       // index in the group
  int64_t num_frames;
};

// The frames of `group` from the first to the last that `item` needs.
// num_frames is 0 if it needs none: the group may lie between its two stacks.
Cut CutOf(const Group& group, const SampledItem& item, int64_t stack) {
  const int64_t begin = group.view.first_step();
  const int64_t end = group.view.end_observation();
  int64_t first = end, last = begin - 1;
  for (const int64_t top : {item.step, item.step + item.n}) {
    const int64_t low = std::max(begin, StackBegin(top, stack));
    const int64_t high = std::min(end - 1, top);
    if (low > high) continue;
    first = std::min(first, low);
    last = std::max(last, high);
  }
  return {FrameGroupView(group.view.frames()), begin, first - begin,
          std::max<int64_t>(0, last - first + 1)};
}

void CheckPart(const char* what, size_t size, size_t count, size_t limit) {
  if (size <= limit) return;
  throw InvalidArgument(fmt::format(
      "replay.sample: {} items make {} bytes of {}; at most {} are allowed; "
      "hint: ask for fewer items at once",
      count, size, what, limit));
}

void CopyTo(std::byte*& to, std::span<const std::byte> bytes) {
  if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  to += bytes.size();
}

// The destinations of a batch's rows, each [B, ...].
struct RowSpans {
  std::byte* observations;
  std::byte* next_observations;
  std::byte* actions;
};

std::byte* RowInMemory(const BatchTarget& target, uint64_t array,
                       int64_t row_bytes) {
  return target.memory->bytes().data() + array +
         target.place.first_row * static_cast<uint64_t>(row_bytes);
}

// The rows in memory, or in `frame`, which is allocated.
RowSpans PlaceRows(size_t count, const StepShape& shape, size_t max_part_bytes,
                   const BatchTarget* target, rpc::Frame* frame) {
  if (target != nullptr) {
    const BatchPlace& place = target->place;
    return {
        RowInMemory(*target, place.observations, shape.observation_bytes),
        RowInMemory(*target, place.next_observations, shape.observation_bytes),
        RowInMemory(*target, place.actions, shape.action_bytes)};
  }
  const auto observation_bytes =
      count * static_cast<size_t>(shape.observation_bytes);
  const size_t size =
      2 * observation_bytes + count * static_cast<size_t>(shape.action_bytes);
  CheckPart("rows", size, count, max_part_bytes);
  *frame = rpc::Frame(size);
  std::byte* const rows = frame->mutable_bytes().data();
  return {rows, rows + observation_bytes, rows + 2 * observation_bytes};
}

void CopyRows(const SampledBatch& batch, RowSpans to) {
  for (const SampledItem& item : batch.items) {
    const StepGroupView& view = batch.GroupOf(item, item.step).view;
    const StepGroupView& next_view =
        batch.GroupOf(item, item.step + item.n).view;
    CopyTo(to.observations, view.Observation(item.step - view.first_step()));
    CopyTo(to.next_observations,
           next_view.Observation(item.step + item.n - next_view.first_step()));
    CopyTo(to.actions, view.Action(item.step - view.first_step()));
  }
}

// An uncompressed frame and its place in a stack.
struct FrameCopy {
  const std::byte* from;
  std::byte* to;
};

// Adds the frames of an item whose groups are not compressed.
void AddStackCopies(const SampledBatch& batch, const SampledItem& item,
                    int64_t stack, size_t frame_bytes, std::byte* frames,
                    std::byte* next_frames, std::vector<FrameCopy>* copies) {
  const auto add = [&](int64_t top, std::byte* to) {
    for (int64_t j = 0; j < stack; ++j, to += frame_bytes) {
      const int64_t step = std::max<int64_t>(0, top - stack + 1 + j);
      const StepGroupView& view = batch.GroupOf(item, step).view;
      const FrameGroupView group(view.frames());
      copies->push_back({group.Payload(step - view.first_step()).data(), to});
    }
  };
  add(item.step, frames);
  add(item.step + item.n, next_frames);
}

void CopyFrames(std::span<const FrameCopy> copies, size_t frame_bytes) {
  constexpr size_t kPage = 4096;
  for (size_t i = 0; i < copies.size(); ++i) {
    // frames are scattered over gigabytes, and the processor prefetches within
    // a page only: without this it would wait for each frame
    if (i + 1 < copies.size()) {
      for (size_t offset = 0; offset < frame_bytes; offset += kPage) {
        __builtin_prefetch(copies[i + 1].from + offset, /*rw=*/0);
        __builtin_prefetch(copies[i + 1].to + offset, /*rw=*/1);
      }
    }
    std::memcpy(copies[i].to, copies[i].from, frame_bytes);
  }
}

template <typename T, typename Items, typename Value>
void WriteColumn(WireWriter& writer, const Items& items, Value value) {
  std::vector<T> column;
  column.reserve(items.size());
  for (const auto& item : items) column.push_back(static_cast<T>(value(item)));
  writer.WriteArray<T>(column);
}

void WriteItemColumns(WireWriter& writer, const SampledBatch& batch) {
  using Item = const SampledItem&;
  const auto& items = batch.items;
  WriteColumn<uint32_t>(writer, items, [](Item i) { return i.key.slot; });
  WriteColumn<uint32_t>(writer, items, [](Item i) { return i.key.generation; });
  WriteColumn<double>(writer, items, [](Item i) { return i.probability; });
  WriteColumn<float>(writer, items, [](Item i) { return i.priority; });
  WriteColumn<float>(writer, items, [](Item i) { return i.reward; });
  WriteColumn<float>(writer, items, [](Item i) { return i.discount; });
  WriteColumn<uint32_t>(writer, items, [](Item i) { return i.times_sampled; });
  WriteColumn<uint32_t>(writer, items, [](Item i) { return i.step; });
  WriteColumn<uint32_t>(writer, items, [](Item i) { return i.n; });
}

// The segments and frame copies of a batch.
struct Plan {
  std::vector<Cut> cuts;
  std::vector<uint32_t> cuts_of_item;
  std::vector<uint32_t> sizes;  // of each cut's frame group
  size_t total_bytes = 0;
  std::vector<FrameCopy> copies;  // of the items without segments
};

// Plans segments for each item, or copies if its frames are not compressed and
// there is a target.
Plan MakePlan(const SampledBatch& batch, const StepShape& shape, int64_t stack,
              const BatchTarget* target) {
  Plan plan;
  plan.cuts_of_item.assign(batch.items.size(), 0);
  if (shape.frame_bytes == 0) return plan;
  const auto stack_bytes = stack * shape.frame_bytes;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const SampledItem& item = batch.items[i];
    const size_t begin = plan.cuts.size();
    bool is_raw = true;
    for (int64_t g = 0; g < item.num_groups; ++g) {
      Cut cut = CutOf(*batch.groups[static_cast<size_t>(item.first_group + g)],
                      item, stack);
      if (cut.num_frames == 0) continue;
      is_raw &= cut.frames.codec() == FrameCodec::kNone;
      plan.cuts.push_back(cut);
    }
    if (is_raw && target != nullptr) {
      plan.cuts.erase(plan.cuts.begin() + static_cast<ptrdiff_t>(begin),
                      plan.cuts.end());
      const size_t row = i * static_cast<size_t>(stack_bytes);
      const BatchPlace& place = target->place;
      AddStackCopies(batch, item, stack, static_cast<size_t>(shape.frame_bytes),
                     RowInMemory(*target, place.frames, stack_bytes) + row,
                     RowInMemory(*target, place.next_frames, stack_bytes) + row,
                     &plan.copies);
    }
    for (size_t c = begin; c < plan.cuts.size(); ++c) {
      const Cut& cut = plan.cuts[c];
      const size_t size = cut.frames.SubsetBytes(cut.first, cut.num_frames);
      plan.sizes.push_back(static_cast<uint32_t>(size));
      plan.total_bytes += size;
    }
    plan.cuts_of_item[i] = static_cast<uint32_t>(plan.cuts.size() - begin);
  }
  return plan;
}

void WriteSegments(const Plan& plan, std::span<std::byte> to) {
  size_t offset = 0;
  for (size_t i = 0; i < plan.cuts.size(); ++i) {
    const Cut& cut = plan.cuts[i];
    cut.frames.WriteSubset(cut.first, cut.num_frames,
                           to.subspan(offset, plan.sizes[i]));
    offset += plan.sizes[i];
  }
}

// Part 0 of the message.
rpc::Frame EncodeHeader(const SampledBatch& batch, BatchState state,
                        int64_t stack, bool are_rows_in_memory,
                        bool are_segments_in_memory, const Plan& plan) {
  WireWriter header(128 + 48 * batch.items.size() + 16 * plan.cuts.size());
  header.Write(static_cast<uint8_t>(state));
  header.Write(static_cast<uint64_t>(batch.table_size));
  header.Write(batch.table_mass);
  header.Write(static_cast<uint64_t>(batch.total_steps));
  header.Write(static_cast<uint32_t>(stack));
  header.WriteBool(are_rows_in_memory);
  header.WriteBool(are_segments_in_memory);
  WriteItemColumns(header, batch);
  header.WriteArray<uint32_t>(plan.cuts_of_item);
  WriteColumn<uint32_t>(header, plan.cuts,
                        [](const Cut& c) { return c.first_step + c.first; });
  WriteColumn<uint32_t>(header, plan.cuts,
                        [](const Cut& c) { return c.num_frames; });
  WriteColumn<uint32_t>(header, plan.cuts, [](const Cut& c) {
    return c.frames.SubsetIndex(c.first);
  });
  header.WriteArray<uint32_t>(plan.sizes);
  return header.Finish();
}

}  // namespace

void BatchTarget::Check(uint32_t count, const StepShape& shape,
                        int64_t stack) const {
  const uint64_t size = memory->bytes().size();
  const auto check = [&](const char* name, uint64_t offset, uint64_t bytes) {
    if (offset <= size && bytes <= size - offset) return;
    throw InvalidArgument(fmt::format(
        "replay.sample: place: {} bytes of {} at offset {} of a memory of {}",
        bytes, name, offset, size));
  };
  const uint64_t rows = uint64_t{place.first_row} + count;
  const auto row = [rows](int64_t bytes) {
    return rows * static_cast<uint64_t>(bytes);
  };
  check("observations", place.observations, row(shape.observation_bytes));
  check("next_observations", place.next_observations,
        row(shape.observation_bytes));
  check("actions", place.actions, row(shape.action_bytes));
  check("frames", place.frames, row(stack * shape.frame_bytes));
  check("next_frames", place.next_frames, row(stack * shape.frame_bytes));
  check("segments", place.segments, place.segments_bytes);
}

rpc::Message EncodeBatch(const SampledBatch& batch, BatchState state,
                         const StepShape& shape, int64_t stack,
                         size_t max_part_bytes, const BatchTarget* target) {
  rpc::Frame rows;
  CopyRows(batch,
           PlaceRows(batch.items.size(), shape, max_part_bytes, target, &rows));
  const Plan plan = MakePlan(batch, shape, stack, target);
  CopyFrames(plan.copies, static_cast<size_t>(shape.frame_bytes));
  const bool are_segments_in_memory =
      target != nullptr && plan.total_bytes <= target->place.segments_bytes;
  rpc::Frame segments;
  if (are_segments_in_memory) {
    WriteSegments(plan, target->memory->bytes().subspan(target->place.segments,
                                                        plan.total_bytes));
  } else {
    CheckPart("frames", plan.total_bytes, batch.items.size(), max_part_bytes);
    segments = rpc::Frame(plan.total_bytes);
    WriteSegments(plan, segments.mutable_bytes());
  }
  rpc::Message message;
  message.push_back(EncodeHeader(batch, state, stack, target != nullptr,
                                 are_segments_in_memory, plan));
  message.push_back(std::move(rows));
  message.push_back(std::move(segments));
  return message;
}

// --- the reader's side ---

namespace {

// Reads a column and checks that it is as long as the others.
template <typename T>
std::vector<T> ReadColumn(WireReader& reader, std::string_view field,
                          size_t size) {
  std::vector<T> column =
      reader.ReadArray<T>(field, static_cast<uint32_t>(size));
  if (column.size() != size) {
    throw MalformedMessage(
        fmt::format("{}: field '{}' has {} elements, want {}", kName, field,
                    column.size(), size));
  }
  return column;
}

}  // namespace

BatchMessage::BatchMessage(rpc::Message payload, const StepShape& shape,
                           const BatchTarget* target)
    : payload_(std::move(payload)), shape_(shape) {
  CheckNumParts(kName, payload_, 3);
  ReadColumns();
  if (target == nullptr && (are_rows_in_memory_ || are_segments_in_memory_)) {
    throw MalformedMessage(
        fmt::format("{}: in memory that was not offered", kName));
  }
  if (target != nullptr) memory_ = target->memory;
  FindRows(target);
  FindSegments(target);
  CheckSegments();
}

void BatchMessage::FindRows(const BatchTarget* target) {
  const size_t count = items_.size();
  const auto bytes_of = [count](int64_t row_bytes) {
    return count * static_cast<size_t>(row_bytes);
  };
  if (are_rows_in_memory_) {
    try {
      target->Check(static_cast<uint32_t>(count), shape_, stack_);
    } catch (const InvalidArgument& e) {
      throw MalformedMessage(fmt::format("{}: {}", kName, e.what()));
    }
    const auto rows = [&](uint64_t array, int64_t row_bytes) {
      return std::span<const std::byte>(RowInMemory(*target, array, row_bytes),
                                        bytes_of(row_bytes));
    };
    const BatchPlace& place = target->place;
    observations_ = rows(place.observations, shape_.observation_bytes);
    next_observations_ =
        rows(place.next_observations, shape_.observation_bytes);
    actions_ = rows(place.actions, shape_.action_bytes);
    frames_ = rows(place.frames, stack_ * shape_.frame_bytes);
    next_frames_ = rows(place.next_frames, stack_ * shape_.frame_bytes);
  }
  const size_t size =
      are_rows_in_memory_
          ? 0
          : bytes_of(2 * shape_.observation_bytes + shape_.action_bytes);
  if (payload_[1].size() != size) {
    throw MalformedMessage(fmt::format("{}: {} bytes of rows, want {}", kName,
                                       payload_[1].size(), size));
  }
  if (are_rows_in_memory_) return;
  const std::span<const std::byte> rows = payload_[1].bytes();
  const size_t next = bytes_of(shape_.observation_bytes);
  observations_ = rows.first(next);
  next_observations_ = rows.subspan(next, next);
  actions_ = rows.subspan(2 * next);
}

void BatchMessage::FindSegments(const BatchTarget* target) {
  const size_t size = are_segments_in_memory_ ? 0 : segments_bytes_;
  if (payload_[2].size() != size ||
      (are_segments_in_memory_ &&
       segments_bytes_ > target->place.segments_bytes)) {
    throw MalformedMessage(
        fmt::format("{}: {} bytes of segments, {} of them in part 2", kName,
                    segments_bytes_, payload_[2].size()));
  }
  segment_data_ = are_segments_in_memory_
                      ? target->memory->bytes().subspan(target->place.segments,
                                                        segments_bytes_)
                      : payload_[2].bytes();
}

void BatchMessage::ReadColumns() {
  WireReader reader(kName, payload_[0].bytes());
  const auto state = reader.Read<uint8_t>("state");
  if (state > static_cast<uint8_t>(BatchState::kClosed)) {
    throw MalformedMessage(
        fmt::format("{}: field 'state': no state {}", kName, state));
  }
  state_ = static_cast<BatchState>(state);
  table_size_ = static_cast<int64_t>(reader.Read<uint64_t>("table_size"));
  table_mass_ = reader.Read<double>("table_mass");
  total_steps_ = static_cast<int64_t>(reader.Read<uint64_t>("total_steps"));
  stack_ = reader.Read<uint32_t>("stack");
  if (stack_ < 1 || stack_ > kMaxStack) {
    throw MalformedMessage(fmt::format(
        "{}: field 'stack': {} is outside [1, {}]", kName, stack_, kMaxStack));
  }
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
  const auto steps = ReadColumn<uint32_t>(reader, "step", count);
  const auto ns = ReadColumn<uint32_t>(reader, "n", count);
  const auto num_segments = ReadColumn<uint32_t>(reader, "num_segments", count);
  items_.reserve(count);
  segment_ends_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (steps[i] > INT32_MAX || ns[i] > kMaxNStep) {
      throw MalformedMessage(fmt::format("{}: item {} at step {} with n = {}",
                                         kName, i, steps[i], ns[i]));
    }
    items_.push_back({.key = {slots[i], generations[i]},
                      .probability = probabilities[i],
                      .priority = priorities[i],
                      .reward = rewards[i],
                      .discount = discounts[i],
                      .times_sampled = times[i],
                      .step = steps[i],
                      .n = ns[i]});
    if (num_segments[i] > kMaxSegmentsPerItem) {
      throw MalformedMessage(
          fmt::format("{}: item {} of {} segments; at most {} are allowed",
                      kName, i, num_segments[i], kMaxSegmentsPerItem));
    }
    segment_ends_.push_back((i == 0 ? 0 : segment_ends_[i - 1]) +
                            num_segments[i]);
  }

  const size_t total = count == 0 ? 0 : segment_ends_.back();
  const auto first_steps = ReadColumn<uint32_t>(reader, "first_step", total);
  const auto num_frames = ReadColumn<uint32_t>(reader, "num_frames", total);
  const auto skips = ReadColumn<uint32_t>(reader, "skip", total);
  const auto sizes = ReadColumn<uint32_t>(reader, "segment_bytes", total);
  reader.Finish();
  segments_.reserve(total);
  for (size_t i = 0; i < total; ++i) {
    segments_.push_back(
        {first_steps[i], num_frames[i], skips[i], segments_bytes_, sizes[i]});
    segments_bytes_ += sizes[i];
  }
}

// The segments of each item hold every frame of its stacks, in order.
void BatchMessage::CheckSegments() const {
  if (shape_.frame_bytes == 0) {
    if (segments_.empty()) return;
    throw MalformedMessage(
        fmt::format("{}: {} segments without pixels", kName, segments_.size()));
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    const SampledItem& item = items_[i];
    size_t next = i == 0 ? 0 : segment_ends_[i - 1];
    // its stacks are in memory
    if (are_rows_in_memory_ && next == segment_ends_[i]) continue;
    const auto is_covered = [&](int64_t begin, int64_t end) {
      while (begin < end && next < segment_ends_[i]) {
        const Segment& segment = segments_[next];
        if (segment.num_frames > kMaxGroupFrames ||
            segment.first_step > begin) {
          return false;
        }
        begin = std::max(begin, segment.first_step + segment.num_frames);
        if (begin < end) ++next;
      }
      return begin >= end;
    };
    const int64_t top = item.step + item.n;
    if (!is_covered(StackBegin(item.step, stack_), item.step + 1) ||
        !is_covered(std::max(item.step + 1, StackBegin(top, stack_)),
                    top + 1)) {
      throw MalformedMessage(fmt::format(
          "{}: the segments of item {} do not hold all its frames", kName, i));
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
  return RowOf(observations_, index, shape_.observation_bytes);
}

std::span<const std::byte> BatchMessage::NextObservation(int64_t index) const {
  return RowOf(next_observations_, index, shape_.observation_bytes);
}

std::span<const std::byte> BatchMessage::Action(int64_t index) const {
  return RowOf(actions_, index, shape_.action_bytes);
}

void BatchMessage::DecodeFrames(int64_t index, FrameDecoder& decoder,
                                std::span<std::byte> frames,
                                std::span<std::byte> next_frames) const {
  const auto frame_bytes = static_cast<size_t>(shape_.frame_bytes);
  const int64_t stack_bytes = stack_ * shape_.frame_bytes;
  REPLICANT_CHECK(index >= 0 && index < size(), "item {} of {}", index, size());
  REPLICANT_CHECK_EQ(static_cast<int64_t>(frames.size()), stack_bytes);
  REPLICANT_CHECK_EQ(static_cast<int64_t>(next_frames.size()), stack_bytes);
  const auto i = static_cast<size_t>(index);
  const size_t begin = i == 0 ? 0 : segment_ends_[i - 1];
  if (begin == segment_ends_[i]) {
    const auto copy = [&](std::span<const std::byte> from,
                          std::span<std::byte> to) {
      const auto row = RowOf(from, index, stack_bytes);
      if (row.data() != to.data()) {
        std::memcpy(to.data(), row.data(), row.size());
      }
    };
    copy(frames_, frames);
    copy(next_frames_, next_frames);
    return;
  }

  // the steps of both stacks in their order, each with its place
  struct Wanted {
    int64_t step;
    std::byte* out;
  };
  Wanted wanted[2 * kMaxStack];
  const SampledItem& item = items_[i];
  for (int64_t j = 0; j < stack_; ++j) {
    const auto offset = static_cast<size_t>(j) * frame_bytes;
    const int64_t back = stack_ - 1 - j;
    wanted[j] = {std::max<int64_t>(0, item.step - back),
                 frames.data() + offset};
    wanted[stack_ + j] = {std::max<int64_t>(0, item.step + item.n - back),
                          next_frames.data() + offset};
  }
  std::sort(wanted, wanted + 2 * stack_,
            [](const Wanted& a, const Wanted& b) { return a.step < b.step; });

  const Wanted* next = wanted;
  const Wanted* const end = wanted + 2 * stack_;
  for (size_t s = begin; s < segment_ends_[i]; ++s) {
    const Segment& segment = segments_[s];
    const FrameGroupView group(
        segment_data_.subspan(segment.offset, segment.size));
    if (group.frame_bytes() != shape_.frame_bytes ||
        segment.skip + segment.num_frames > group.num_frames()) {
      throw MalformedMessage(
          fmt::format("{}: a segment with frames [{}, {}) holds {} of {} bytes",
                      kName, segment.skip, segment.skip + segment.num_frames,
                      group.num_frames(), group.frame_bytes()));
    }
    FrameDecoder::Target targets[2 * kMaxStack];
    size_t count = 0;
    for (; next != end && next->step < segment.first_step + segment.num_frames;
         ++next) {
      targets[count++] = {segment.skip + next->step - segment.first_step,
                          next->out};
    }
    decoder.Decode(group, {targets, count});
  }
}

}  // namespace replicant::replay
