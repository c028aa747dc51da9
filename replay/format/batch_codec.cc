// A message has three parts: a header with the columns of the items, the rows,
// and the segments. EncodeBatch() goes through the items once to copy their
// rows and once to plan their frames.
//
// A segment is cut from one frame block of an item: the frames from the first
// to the last that the item needs, still compressed. With a target in shared
// memory, items whose chunks are not compressed need no segments: their frames
// are copied to their places, one after the other with prefetching.
#include "replay/format/batch_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/rpc/wire.h"
#include "replay/format/frame_codec.h"
#include "replay/format/frame_copies.h"

namespace replicant::replay {
namespace {

using rpc::WireWriter;

// A range of frames of one chunk that an item needs.
struct Cut {
  FrameBlockView frames;
  int64_t first_step;  // of the chunk
  int64_t first;       // index in the chunk
  int64_t num_frames;
  uint64_t serial;
  bool is_kept = false;  // by the reader
};

// The frames of `chunk` from the first to the last that `item` needs.
// num_frames is 0 if it needs none: the chunk may lie between its two stacks.
Cut CutOf(const Chunk& chunk, const SampledItem& item, const BatchForm& form) {
  const int64_t begin = chunk.view.first_step();
  const int64_t end = chunk.view.end_observation();
  int64_t first = end, last = begin - 1;
  for (const StepRange& needed : form.NeededFrames(item.step, item.n)) {
    const int64_t low = std::max(begin, needed.begin);
    const int64_t high = std::min(end, needed.end) - 1;
    if (low > high) continue;
    first = std::min(first, low);
    last = std::max(last, high);
  }
  return {FrameBlockView(chunk.view.frames()), begin, first - begin,
          std::max<int64_t>(0, last - first + 1), chunk.serial};
}

void CheckPart(const char* what, size_t size, size_t count, size_t limit) {
  if (size <= limit) return;
  throw InvalidArgument(
      fmt::format("replay.sample: {} items make {} bytes of {}; at most {} are "
                  "allowed; hint: request fewer items at once",
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

// The rows in memory, or in `frame`, which is allocated.
RowSpans PlaceRows(size_t count, const RowBytes& row, size_t max_part_bytes,
                   const BatchTarget* target, rpc::Frame* frame) {
  if (target != nullptr) {
    const BatchPlace& place = target->place;
    return {target->Rows(place.observations, row.observations),
            target->Rows(place.next_observations, row.next_observations),
            target->Rows(place.actions, row.actions)};
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

// Finds the chunks of one item in the order of its steps.
class ChunkCursor {
 public:
  ChunkCursor(const SampledBatch& batch, const SampledItem& item)
      : next_(batch.chunks.begin() + item.first_chunk) {}

  // The chunk that holds observation `step`, which is not below the previous
  // call's. Precondition: it lies in the item's chunks.
  const ChunkView& At(int64_t step) {
    while ((*next_)->view.end_observation() <= step) ++next_;
    return (*next_)->view;
  }

 private:
  std::vector<std::shared_ptr<const Chunk>>::const_iterator next_;
};

// The rows of a window, with zeros beyond its steps.
void CopyWindow(const SampledBatch& batch, const SampledItem& item,
                const StepShape& shape, const BatchForm& form, RowSpans& to) {
  ChunkCursor chunks(batch, item);
  for (int64_t i = 0; i <= item.n; ++i) {
    const ChunkView& view = chunks.At(item.step + i);
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
  const ChunkView& view = batch.ChunkOf(item, item.step).view;
  const ChunkView& next_view = batch.ChunkOf(item, item.step + item.n).view;
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
    ChunkCursor chunks(batch, item);
    for (int64_t i = 0; i < item.n; ++i) {
      const ChunkView& view = chunks.At(item.step + i);
      const int64_t row = item.step + i - view.first_step();
      reward[i] = view.reward(row);
      discount[i] = view.discount(row);
    }
    reward += window;
    discount += window;
  }
  return columns;
}

// Adds the frames of an item whose chunks are not compressed; `frames` and
// `next_frames` are its rows. Writes the zeros beyond its last frame.
void AddFrameCopies(const SampledBatch& batch, const SampledItem& item,
                    const BatchForm& form, int64_t frame_bytes,
                    std::byte* frames, std::byte* next_frames,
                    std::vector<FrameCopy>* copies) {
  const auto add = [&](int64_t step, bool is_next, int64_t j) {
    const ChunkView& view = batch.ChunkOf(item, step).view;
    const FrameBlockView chunk(view.frames());
    std::byte* const row = is_next ? next_frames : frames;
    copies->push_back({chunk.Payload(step - view.first_step()).data(),
                       row + j * frame_bytes});
  };
  form.ForEachFrame(item.step, item.n, add);
  const int64_t num_zero = form.NumZeroFrames(item.n);
  std::byte* zeros = frames + (form.num_frames() - num_zero) * frame_bytes;
  ZeroTo(zeros, num_zero * frame_bytes);
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
  WriteColumn<uint64_t>(writer, items, [](Item i) { return i.age; });
  WriteColumn<uint32_t>(writer, items, [](Item i) { return i.step; });
  WriteColumn<uint32_t>(writer, items, [](Item i) { return i.n; });
}

// The segments and frame copies of a batch.
struct Plan {
  std::vector<Cut> cuts;
  std::vector<uint32_t> cuts_of_item;
  std::vector<uint32_t> sizes;  // of each cut's frame block
  size_t total_bytes = 0;
  std::vector<FrameCopy> copies;  // of the items without segments
};

// Plans segments for each item, or copies if its frames are not compressed, the
// reader keeps none of them, and there is a target.
Plan MakePlan(const SampledBatch& batch, const StepShape& shape,
              const BatchForm& form, const BatchTarget* target,
              const KeptRange& kept) {
  Plan plan;
  plan.cuts_of_item.assign(batch.items.size(), 0);
  if (shape.frame_bytes == 0) return plan;
  const RowBytes row = form.BytesOf(shape);
  for (size_t i = 0; i < batch.items.size(); ++i) {
    const SampledItem& item = batch.items[i];
    const size_t begin = plan.cuts.size();
    bool is_copied = target != nullptr;
    for (int64_t g = 0; g < item.num_chunks; ++g) {
      Cut cut = CutOf(*batch.chunks[static_cast<size_t>(item.first_chunk + g)],
                      item, form);
      if (cut.num_frames == 0) continue;
      cut.is_kept = kept.Holds(cut.serial);
      is_copied &= cut.frames.codec() == FrameCodec::kNone && !cut.is_kept;
      plan.cuts.push_back(cut);
    }
    if (is_copied) {
      plan.cuts.erase(plan.cuts.begin() + static_cast<ptrdiff_t>(begin),
                      plan.cuts.end());
      const auto index = static_cast<int64_t>(i);
      AddFrameCopies(
          batch, item, form, shape.frame_bytes,
          target->Rows(target->place.frames, row.frames) + index * row.frames,
          target->Rows(target->place.next_frames, row.next_frames) +
              index * row.next_frames,
          &plan.copies);
    }
    for (size_t c = begin; c < plan.cuts.size(); ++c) {
      const Cut& cut = plan.cuts[c];
      const size_t size =
          cut.is_kept ? 0 : cut.frames.SubsetBytes(cut.first, cut.num_frames);
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
    if (cut.is_kept) continue;
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
  WireWriter header(128 + 48 * batch.items.size() + 24 * plan.cuts.size() +
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
    return c.is_kept ? c.first : c.frames.SubsetIndex(c.first);
  });
  header.WriteArray<uint32_t>(plan.sizes);
  WriteColumn<uint64_t>(header, plan.cuts,
                        [](const Cut& c) { return c.serial; });
  return header.Finish();
}

}  // namespace

rpc::Message EncodeBatch(const SampledBatch& batch, BatchState state,
                         const StepShape& shape, const BatchForm& form,
                         size_t max_part_bytes, const BatchTarget* target,
                         const KeptRange& kept) {
  rpc::Frame rows;
  CopyRows(batch, shape, form,
           PlaceRows(batch.items.size(), form.BytesOf(shape), max_part_bytes,
                     target, &rows));
  const Plan plan = MakePlan(batch, shape, form, target, kept);
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

}  // namespace replicant::replay
