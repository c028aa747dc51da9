// A message has three parts: a header with the columns of the items, the rows,
// and the segments. EncodeBatch() goes through the items once to copy their
// rows and once to plan their frames.
//
// A segment is cut from one frame group of an item: the frames from the first
// to the last that the item needs, still compressed. With a target in shared
// memory, items whose groups are not compressed need no segments: their frames
// are copied to their places, one after the other with prefetching.
//
// The reader checks the header completely; segments are checked against the
// steps that the item needs before any is decoded.
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
constexpr uint32_t kMaxSegmentsPerItem =
    std::max(kMaxNStep, kMaxWindow) + kMaxStack + 1;
// Maximum number of frames that an item holds.
constexpr int64_t kMaxFramesPerItem =
    std::max(kMaxWindow, kMaxStack) + kMaxStack;

// A range of frames of one group that an item needs.
struct Cut {
  FrameGroupView frames;
  int64_t first_step;  // of the group
  int64_t first;       // index in the group
  int64_t num_frames;
};

// The frames of `group` from the first to the last that `item` needs.
// num_frames is 0 if it needs none: the group may lie between its two stacks.
Cut CutOf(const Group& group, const SampledItem& item, const BatchForm& form) {
  const int64_t begin = group.view.first_step();
  const int64_t end = group.view.end_observation();
  int64_t first = end, last = begin - 1;
  for (const StepRange& needed : form.NeededFrames(item.step, item.n)) {
    const int64_t low = std::max(begin, needed.begin);
    const int64_t high = std::min(end, needed.end) - 1;
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

void ZeroTo(std::byte*& to, int64_t count) {
  to = std::fill_n(to, count, std::byte{0});
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
RowSpans PlaceRows(size_t count, const RowBytes& row, size_t max_part_bytes,
                   const BatchTarget* target, rpc::Frame* frame) {
  if (target != nullptr) {
    const BatchPlace& place = target->place;
    return {
        RowInMemory(*target, place.observations, row.observations),
        RowInMemory(*target, place.next_observations, row.next_observations),
        RowInMemory(*target, place.actions, row.actions)};
  }
  const auto bytes_of = [count](int64_t row_bytes) {
    return count * static_cast<size_t>(row_bytes);
  };
  const size_t size = bytes_of(row.observations) +
                      bytes_of(row.next_observations) + bytes_of(row.actions);
  CheckPart("rows", size, count, max_part_bytes);
  *frame = rpc::Frame(size);
  std::byte* const rows = frame->mutable_bytes().data();
  std::byte* const next = rows + bytes_of(row.observations);
  return {rows, next, next + bytes_of(row.next_observations)};
}

// Finds the groups of one item in the order of its steps.
class GroupCursor {
 public:
  GroupCursor(const SampledBatch& batch, const SampledItem& item)
      : next_(batch.groups.begin() + item.first_group) {}

  // The group that holds observation `step`, which is not below that of the
  // call before. Precondition: it lies in the item's groups.
  const StepGroupView& At(int64_t step) {
    while ((*next_)->view.end_observation() <= step) ++next_;
    return (*next_)->view;
  }

 private:
  std::vector<std::shared_ptr<const Group>>::const_iterator next_;
};

// The rows of a window, with zeros beyond its steps.
void CopyWindow(const SampledBatch& batch, const SampledItem& item,
                const StepShape& shape, const BatchForm& form, RowSpans& to) {
  GroupCursor groups(batch, item);
  for (int64_t i = 0; i <= item.n; ++i) {
    const StepGroupView& view = groups.At(item.step + i);
    const int64_t row = item.step + i - view.first_step();
    CopyTo(to.observations, view.Observation(row));
    if (i < item.n) CopyTo(to.actions, view.Action(row));
  }
  const int64_t missing = form.window - item.n;
  ZeroTo(to.observations, missing * shape.observation_bytes);
  ZeroTo(to.actions, missing * shape.action_bytes);
}

void CopyTransition(const SampledBatch& batch, const SampledItem& item,
                    RowSpans& to) {
  const StepGroupView& view = batch.GroupOf(item, item.step).view;
  const StepGroupView& next_view = batch.GroupOf(item, item.step + item.n).view;
  CopyTo(to.observations, view.Observation(item.step - view.first_step()));
  CopyTo(to.next_observations,
         next_view.Observation(item.step + item.n - next_view.first_step()));
  CopyTo(to.actions, view.Action(item.step - view.first_step()));
}

void CopyRows(const SampledBatch& batch, const StepShape& shape,
              const BatchForm& form, RowSpans to) {
  for (const SampledItem& item : batch.items) {
    if (form.HasWindows()) {
      CopyWindow(batch, item, shape, form, to);
    } else {
      CopyTransition(batch, item, to);
    }
  }
}

// Rewards and discounts of each step of windows, [B, H], zero beyond a
// window's steps; empty for transitions.
struct StepColumns {
  std::vector<float> rewards, discounts;
};

StepColumns StepColumnsOf(const SampledBatch& batch, const BatchForm& form) {
  StepColumns columns;
  const auto window = static_cast<size_t>(form.window);
  columns.rewards.resize(batch.items.size() * window);
  columns.discounts.resize(batch.items.size() * window);
  if (!form.HasWindows()) return columns;
  float* reward = columns.rewards.data();
  float* discount = columns.discounts.data();
  for (const SampledItem& item : batch.items) {
    GroupCursor groups(batch, item);
    for (int64_t i = 0; i < item.n; ++i) {
      const StepGroupView& view = groups.At(item.step + i);
      const int64_t row = item.step + i - view.first_step();
      reward[i] = view.reward(row);
      discount[i] = view.discount(row);
    }
    reward += window;
    discount += window;
  }
  return columns;
}

// An uncompressed frame and its place in a batch.
struct FrameCopy {
  const std::byte* from;
  std::byte* to;
};

// Adds the frames of an item whose groups are not compressed; `frames` and
// `next_frames` are its rows. Writes the zeros beyond its last frame.
void AddFrameCopies(const SampledBatch& batch, const SampledItem& item,
                    const BatchForm& form, int64_t frame_bytes,
                    std::byte* frames, std::byte* next_frames,
                    std::vector<FrameCopy>* copies) {
  const auto add = [&](int64_t step, bool is_next, int64_t j) {
    const StepGroupView& view = batch.GroupOf(item, step).view;
    const FrameGroupView group(view.frames());
    std::byte* const row = is_next ? next_frames : frames;
    copies->push_back({group.Payload(step - view.first_step()).data(),
                       row + j * frame_bytes});
  };
  form.ForEachFrame(item.step, item.n, add);
  const int64_t num_zero = form.NumZeroFrames(item.n);
  std::byte* zeros = frames + (form.num_frames() - num_zero) * frame_bytes;
  ZeroTo(zeros, num_zero * frame_bytes);
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
Plan MakePlan(const SampledBatch& batch, const StepShape& shape,
              const BatchForm& form, const BatchTarget* target) {
  Plan plan;
  plan.cuts_of_item.assign(batch.items.size(), 0);
  if (shape.frame_bytes == 0) return plan;
  const RowBytes row = form.BytesOf(shape);
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const SampledItem& item = batch.items[i];
    const size_t begin = plan.cuts.size();
    bool is_raw = true;
    for (int64_t g = 0; g < item.num_groups; ++g) {
      Cut cut = CutOf(*batch.groups[static_cast<size_t>(item.first_group + g)],
                      item, form);
      if (cut.num_frames == 0) continue;
      is_raw &= cut.frames.codec() == FrameCodec::kNone;
      plan.cuts.push_back(cut);
    }
    if (is_raw && target != nullptr) {
      plan.cuts.erase(plan.cuts.begin() + static_cast<ptrdiff_t>(begin),
                      plan.cuts.end());
      const auto index = static_cast<int64_t>(i);
      AddFrameCopies(
          batch, item, form, shape.frame_bytes,
          RowInMemory(*target, target->place.frames, row.frames) +
              index * row.frames,
          RowInMemory(*target, target->place.next_frames, row.next_frames) +
              index * row.next_frames,
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
                        const BatchForm& form, bool are_rows_in_memory,
                        bool are_segments_in_memory, const Plan& plan) {
  const StepColumns steps = StepColumnsOf(batch, form);
  WireWriter header(128 + 48 * batch.items.size() + 16 * plan.cuts.size() +
                    8 * steps.rewards.size());
  header.Write(static_cast<uint8_t>(state));
  header.Write(static_cast<uint64_t>(batch.table_size));
  header.Write(batch.table_mass);
  header.Write(static_cast<uint64_t>(batch.total_steps));
  header.Write(static_cast<uint32_t>(form.stack));
  header.Write(static_cast<uint32_t>(form.window));
  header.WriteBool(are_rows_in_memory);
  header.WriteBool(are_segments_in_memory);
  WriteItemColumns(header, batch);
  header.WriteArray<uint32_t>(plan.cuts_of_item);
  header.WriteArray<float>(steps.rewards);
  header.WriteArray<float>(steps.discounts);
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
                        const BatchForm& form) const {
  const uint64_t size = memory->bytes().size();
  const auto check = [&](const char* name, uint64_t offset, uint64_t bytes) {
    if (offset <= size && bytes <= size - offset) return;
    throw InvalidArgument(fmt::format(
        "replay.sample: place: {} bytes of {} at offset {} of a memory of {}",
        bytes, name, offset, size));
  };
  const uint64_t rows = uint64_t{place.first_row} + count;
  if (rows > kMaxItemsPerBatch) {
    throw InvalidArgument(fmt::format(
        "replay.sample: place: {} rows from row {} on; a batch has at most {}",
        count, place.first_row, kMaxItemsPerBatch));
  }
  const auto bytes_of = [rows](int64_t row_bytes) {
    return rows * static_cast<uint64_t>(row_bytes);
  };
  const RowBytes row = form.BytesOf(shape);
  check("observations", place.observations, bytes_of(row.observations));
  check("next_observations", place.next_observations,
        bytes_of(row.next_observations));
  check("actions", place.actions, bytes_of(row.actions));
  check("frames", place.frames, bytes_of(row.frames));
  check("next_frames", place.next_frames, bytes_of(row.next_frames));
  check("segments", place.segments, place.segments_bytes);
}

rpc::Message EncodeBatch(const SampledBatch& batch, BatchState state,
                         const StepShape& shape, const BatchForm& form,
                         size_t max_part_bytes, const BatchTarget* target) {
  rpc::Frame rows;
  CopyRows(batch, shape, form,
           PlaceRows(batch.items.size(), form.BytesOf(shape), max_part_bytes,
                     target, &rows));
  const Plan plan = MakePlan(batch, shape, form, target);
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
  message.push_back(EncodeHeader(batch, state, form, target != nullptr,
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
  rpc::CheckNumParts(kName, payload_, 3);
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
      target->Check(static_cast<uint32_t>(count), shape_, form_);
    } catch (const InvalidArgument& e) {
      throw MalformedMessage(fmt::format("{}: {}", kName, e.what()));
    }
    const auto rows = [&](uint64_t array, int64_t row_bytes) {
      return std::span<const std::byte>(RowInMemory(*target, array, row_bytes),
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
    throw MalformedMessage(fmt::format("{}: {} bytes of rows, want {}", kName,
                                       payload_[1].size(), size));
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
        fmt::format("{}: {} bytes of segments, {} of them in part 2", kName,
                    segments_bytes_, payload_[2].size()));
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
                                       kName, field, value, low, high));
  };
  form_.stack = read("stack", 1, kMaxStack);
  form_.window = read("window", 0, kMaxWindow);
  row_bytes_ = form_.BytesOf(shape_);
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
  const auto steps = ReadColumn<uint32_t>(reader, "step", count);
  const auto ns = ReadColumn<uint32_t>(reader, "n", count);
  const auto num_segments = ReadColumn<uint32_t>(reader, "num_segments", count);
  items_.reserve(count);
  segment_ends_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const int64_t max_n = form_.HasWindows() ? form_.window : kMaxNStep;
    if (steps[i] > INT32_MAX || ns[i] > max_n) {
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

  const size_t num_steps = count * static_cast<size_t>(form_.window);
  step_rewards_ = ReadColumn<float>(reader, "step_reward", num_steps);
  step_discounts_ = ReadColumn<float>(reader, "step_discount", num_steps);

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

// The segments of each item hold every frame that it needs, in order.
void BatchMessage::CheckSegments() const {
  if (shape_.frame_bytes == 0) {
    if (segments_.empty()) return;
    throw MalformedMessage(
        fmt::format("{}: {} segments without pixels", kName, segments_.size()));
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    const SampledItem& item = items_[i];
    size_t next = i == 0 ? 0 : segment_ends_[i - 1];
    // its frames are in memory
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
    const auto [first, second] = form_.NeededFrames(item.step, item.n);
    if (!is_covered(first.begin, first.end) ||
        !is_covered(std::max(first.end, second.begin), second.end)) {
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

void BatchMessage::DecodeFrames(int64_t index, FrameDecoder& decoder,
                                std::span<std::byte> frames,
                                std::span<std::byte> next_frames) const {
  const auto frame_bytes = static_cast<size_t>(shape_.frame_bytes);
  REPLICANT_CHECK(index >= 0 && index < size(), "item {} of {}", index, size());
  REPLICANT_CHECK_EQ(static_cast<int64_t>(frames.size()), row_bytes_.frames);
  REPLICANT_CHECK_EQ(static_cast<int64_t>(next_frames.size()),
                     row_bytes_.next_frames);
  const auto i = static_cast<size_t>(index);
  const size_t begin = i == 0 ? 0 : segment_ends_[i - 1];
  if (begin == segment_ends_[i]) {
    const auto copy = [&](std::span<const std::byte> from,
                          std::span<std::byte> to) {
      const auto row = RowOf(from, index, static_cast<int64_t>(to.size()));
      if (row.data() != to.data() && !row.empty()) {
        std::memcpy(to.data(), row.data(), row.size());
      }
    };
    copy(frames_, frames);
    copy(next_frames_, next_frames);
    return;
  }

  // the steps that are wanted, in their order, each with its place
  struct Wanted {
    int64_t step;
    std::byte* out;
  };
  Wanted wanted[kMaxFramesPerItem];
  size_t num_wanted = 0;
  const SampledItem& item = items_[i];
  const auto want = [&](int64_t step, bool is_next, int64_t j) {
    wanted[num_wanted++] = {step, (is_next ? next_frames : frames).data() +
                                      static_cast<size_t>(j) * frame_bytes};
  };
  form_.ForEachFrame(item.step, item.n, want);
  std::sort(wanted, wanted + num_wanted,
            [](const Wanted& a, const Wanted& b) { return a.step < b.step; });
  const auto num_zero = static_cast<size_t>(form_.NumZeroFrames(item.n));
  std::ranges::fill(frames.last(num_zero * frame_bytes), std::byte{0});

  const Wanted* next = wanted;
  const Wanted* const end = wanted + num_wanted;
  std::vector<FrameDecoder::Target> targets;
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
    targets.clear();
    for (; next != end && next->step < segment.first_step + segment.num_frames;
         ++next) {
      targets.push_back(
          {segment.skip + next->step - segment.first_step, next->out});
    }
    decoder.Decode(group, targets);
  }
}

}  // namespace replicant::replay
