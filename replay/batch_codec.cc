#include "replay/batch_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/rpc/wire.h"
#include "replay/protocol.h"

namespace replicant::replay {
namespace {

using rpc::MalformedMessage;
using rpc::WireReader;
using rpc::WireWriter;

constexpr std::string_view kName = "replay.sample reply";
// Groups that one item can span: its steps and its stack, one step each.
constexpr uint32_t kMaxSegmentsPerItem = kMaxNStep + kMaxStack + 1;

// The first step of the stack of o_end.
int64_t StackBegin(int64_t end, int64_t stack) {
  return std::max<int64_t>(0, end - stack + 1);
}

// A range of frames of one group that an item needs.
struct Cut {
  const Group* group;
  int64_t first_step;
  int64_t num_frames;
};

// The frames of `group` between the first and the last that `item` needs.
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
  return {&group, first, std::max<int64_t>(0, last - first + 1)};
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

rpc::Frame EncodeRows(const SampledBatch& batch, const StepShape& shape,
                      size_t max_part_bytes) {
  const size_t count = batch.items.size();
  const size_t size = count * static_cast<size_t>(2 * shape.observation_bytes +
                                                  shape.action_bytes);
  CheckPart("rows", size, count, max_part_bytes);
  rpc::Frame frame(size);
  std::byte* to = frame.mutable_bytes().data();
  const auto row = [&](const SampledItem& item, int64_t step) {
    const StepGroupView& view = batch.GroupOf(item, step).view;
    return view.Observation(step - view.first_step());
  };
  for (const SampledItem& item : batch.items) CopyTo(to, row(item, item.step));
  for (const SampledItem& item : batch.items) {
    CopyTo(to, row(item, item.step + item.n));
  }
  for (const SampledItem& item : batch.items) {
    const StepGroupView& view = batch.GroupOf(item, item.step).view;
    CopyTo(to, view.Action(item.step - view.first_step()));
  }
  return frame;
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

// What of the groups goes into the third part, and how much of each item.
struct Plan {
  std::vector<Cut> cuts;
  std::vector<uint32_t> cuts_of_item;
  std::vector<uint32_t> sizes;  // of each cut's frame group
  size_t total_bytes = 0;
};

Plan MakePlan(const SampledBatch& batch, int64_t stack, bool has_frames) {
  Plan plan;
  plan.cuts_of_item.assign(batch.items.size(), 0);
  if (!has_frames) return plan;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const SampledItem& item = batch.items[i];
    for (int64_t g = 0; g < item.num_groups; ++g) {
      const Group& group =
          *batch.groups[static_cast<size_t>(item.first_group + g)];
      const Cut cut = CutOf(group, item, stack);
      // a long n-step can lie between the stacks
      if (cut.num_frames == 0) continue;
      const size_t size =
          FrameGroupView(group.view.frames())
              .SubsetBytes(cut.first_step - group.view.first_step(),
                           cut.num_frames);
      plan.cuts.push_back(cut);
      plan.sizes.push_back(static_cast<uint32_t>(size));
      plan.total_bytes += size;
      ++plan.cuts_of_item[i];
    }
  }
  return plan;
}

}  // namespace

rpc::Message EncodeBatch(const SampledBatch& batch, BatchState state,
                         const StepShape& shape, int64_t stack,
                         size_t max_part_bytes) {
  const Plan plan = MakePlan(batch, stack, shape.frame_bytes > 0);
  CheckPart("frames", plan.total_bytes, batch.items.size(), max_part_bytes);
  rpc::Frame rows = EncodeRows(batch, shape, max_part_bytes);

  WireWriter header(128 + 48 * batch.items.size() + 16 * plan.cuts.size());
  header.Write(static_cast<uint8_t>(state));
  header.Write(static_cast<uint64_t>(batch.table_size));
  header.Write(batch.table_mass);
  header.Write(static_cast<uint32_t>(stack));
  WriteItemColumns(header, batch);
  header.WriteArray<uint32_t>(plan.cuts_of_item);
  WriteColumn<uint32_t>(header, plan.cuts,
                        [](const Cut& c) { return c.first_step; });
  WriteColumn<uint32_t>(header, plan.cuts,
                        [](const Cut& c) { return c.num_frames; });
  WriteColumn<uint32_t>(header, plan.cuts, [](const Cut& c) {
    return FrameGroupView(c.group->view.frames())
        .SubsetIndex(c.first_step - c.group->view.first_step());
  });
  header.WriteArray<uint32_t>(plan.sizes);

  rpc::Frame frames(plan.total_bytes);
  size_t offset = 0;
  for (size_t i = 0; i < plan.cuts.size(); ++i) {
    const Cut& cut = plan.cuts[i];
    FrameGroupView(cut.group->view.frames())
        .WriteSubset(cut.first_step - cut.group->view.first_step(),
                     cut.num_frames,
                     frames.mutable_bytes().subspan(offset, plan.sizes[i]));
    offset += plan.sizes[i];
  }
  rpc::Message message;
  message.push_back(header.Finish());
  message.push_back(std::move(rows));
  message.push_back(std::move(frames));
  return message;
}

// --- the reader's side ---

namespace {

// Reads a column that must be as long as the others.
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

BatchMessage::BatchMessage(rpc::Message payload, const StepShape& shape)
    : payload_(std::move(payload)), shape_(shape) {
  CheckNumParts(kName, payload_, 3);
  ReadColumns();
  const size_t rows =
      items_.size() *
      static_cast<size_t>(2 * shape_.observation_bytes + shape_.action_bytes);
  if (payload_[1].size() != rows) {
    throw MalformedMessage(fmt::format("{}: {} bytes of rows, want {}", kName,
                                       payload_[1].size(), rows));
  }
  CheckSegments();
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
  stack_ = reader.Read<uint32_t>("stack");
  if (stack_ < 1 || stack_ > kMaxStack) {
    throw MalformedMessage(fmt::format(
        "{}: field 'stack': {} is outside [1, {}]", kName, stack_, kMaxStack));
  }
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
  size_t offset = 0;
  for (size_t i = 0; i < total; ++i) {
    segments_.push_back(
        {first_steps[i], num_frames[i], skips[i], offset, sizes[i]});
    offset += sizes[i];
  }
  if (payload_[2].size() != offset) {
    throw MalformedMessage(fmt::format("{}: {} bytes of segments, want {}",
                                       kName, payload_[2].size(), offset));
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

std::span<const std::byte> BatchMessage::Row(size_t begin, int64_t index,
                                             int64_t row_bytes) const {
  REPLICANT_CHECK(index >= 0 && index < size(), "item {} of {}", index, size());
  return payload_[1].bytes().subspan(
      begin + static_cast<size_t>(index * row_bytes),
      static_cast<size_t>(row_bytes));
}

std::span<const std::byte> BatchMessage::Observation(int64_t index) const {
  return Row(0, index, shape_.observation_bytes);
}

std::span<const std::byte> BatchMessage::NextObservation(int64_t index) const {
  return Row(static_cast<size_t>(size() * shape_.observation_bytes), index,
             shape_.observation_bytes);
}

std::span<const std::byte> BatchMessage::Action(int64_t index) const {
  return Row(static_cast<size_t>(2 * size() * shape_.observation_bytes), index,
             shape_.action_bytes);
}

void BatchMessage::DecodeFrames(int64_t index, FrameDecoder& decoder,
                                std::vector<std::byte>& scratch,
                                std::span<std::byte> frames,
                                std::span<std::byte> next_frames) const {
  const auto frame_bytes = static_cast<size_t>(shape_.frame_bytes);
  const auto stack_bytes = static_cast<size_t>(stack_) * frame_bytes;
  REPLICANT_CHECK(index >= 0 && index < size(), "item {} of {}", index, size());
  REPLICANT_CHECK_EQ(frames.size(), stack_bytes);
  REPLICANT_CHECK_EQ(next_frames.size(), stack_bytes);
  const auto i = static_cast<size_t>(index);
  const SampledItem& item = items_[i];
  for (size_t s = i == 0 ? 0 : segment_ends_[i - 1]; s < segment_ends_[i];
       ++s) {
    const Segment& segment = segments_[s];
    const FrameGroupView group(
        payload_[2].bytes().subspan(segment.offset, segment.size));
    if (group.frame_bytes() != shape_.frame_bytes ||
        segment.skip + segment.num_frames > group.num_frames()) {
      throw MalformedMessage(
          fmt::format("{}: a segment with frames [{}, {}) holds {} of {} bytes",
                      kName, segment.skip, segment.skip + segment.num_frames,
                      group.num_frames(), group.frame_bytes()));
    }
    // an item's frames overlap between its stacks: decode once, copy to each
    scratch.resize(static_cast<size_t>(segment.num_frames) * frame_bytes);
    decoder.Decode(group, segment.skip, segment.num_frames, scratch);
    const auto copy_to = [&](int64_t top, std::span<std::byte> out) {
      for (int64_t j = 0; j < stack_; ++j) {
        const int64_t step = std::max<int64_t>(0, top - stack_ + 1 + j);
        const int64_t from = step - segment.first_step;
        if (from < 0 || from >= segment.num_frames) continue;
        std::memcpy(out.data() + static_cast<size_t>(j) * frame_bytes,
                    scratch.data() + static_cast<size_t>(from) * frame_bytes,
                    frame_bytes);
      }
    };
    copy_to(item.step, frames);
    copy_to(item.step + item.n, next_frames);
  }
}

}  // namespace replicant::replay
