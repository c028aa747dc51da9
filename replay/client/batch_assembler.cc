#include "replay/client/batch_assembler.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/priority.h"

namespace replicant::replay {
namespace {

// Niceness of the decode threads, which work ahead of time: with few processors
// they should run while the learner waits, not during its step.
constexpr int kDecodeLevels = 10;

// The offsets of a batch's buffers in one block of memory.
struct Layout {
  uint64_t observations = 0, next_observations = 0, actions = 0, frames = 0,
           next_frames = 0, segments = 0, end = 0;
  // Room for compressed frames: half the size of an item's frames. Only frames
  // that hardly compress need more; their segments go with the message.
  uint64_t segment_bytes_per_row = 0;

  Layout(int64_t size, const RowBytes& row) {
    const auto rows = static_cast<uint64_t>(size);
    const auto take = [&, this](uint64_t* offset, int64_t row_bytes) {
      constexpr uint64_t kAlignment = 4096;
      *offset = end;
      end += rows * static_cast<uint64_t>(row_bytes);
      end = (end + kAlignment - 1) / kAlignment * kAlignment;
    };
    take(&observations, row.observations);
    take(&next_observations, row.next_observations);
    take(&actions, row.actions);
    take(&frames, row.frames);
    take(&next_frames, row.next_frames);
    const int64_t segment_bytes = (row.frames + row.next_frames) / 2;
    segment_bytes_per_row = static_cast<uint64_t>(segment_bytes);
    take(&segments, segment_bytes);
  }
};

}  // namespace

BatchAssembler::BatchAssembler(Options options)
    : options_(std::move(options)), can_share_memory_(options_.shares_memory) {
  for (int64_t i = 0; i < options_.decode_threads; ++i) {
    threads_.push_back(std::make_unique<Thread>(
        "replay-decode", [this](const Thread::StopToken&) { Decode(); }));
  }
}

BatchAssembler::~BatchAssembler() { Close(); }

void BatchAssembler::Close() {
  {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    changed_.NotifyAll();
  }
  for (const auto& thread : threads_) thread->Join();
}

std::shared_ptr<BatchAssembly> BatchAssembler::Begin(Batch spare,
                                                     const BatchForm& form,
                                                     bool takes_memory) {
  auto assembly = std::make_shared<BatchAssembly>();
  assembly->batch = std::move(spare);
  assembly->missing = options_.batch_size;
  Prepare(assembly->batch, form, takes_memory);
  return assembly;
}

void BatchAssembler::Prepare(Batch& batch, const BatchForm& form,
                             bool takes_memory) {
  const int64_t size = options_.batch_size;
  const StepShape& shape = options_.shape;
  // a batch that the user returned may come from another reader
  const bool is_usable = batch.HasBuffersFor(size, form, shape);
  if (!is_usable) batch = Batch();
  batch.Resize(size, form);
  if (is_usable) return;

  const RowBytes row = form.BytesOf(shape);
  const Layout layout(size, row);
  if (takes_memory && can_share_memory_) {
    try {
      batch.memory = rpc::SharedMemory::Create(layout.end);
    } catch (const IoError& e) {
      spdlog::warn("reader '{}': {}; batches arrive as messages instead",
                   options_.name, e.what());
      can_share_memory_ = false;
    }
  }
  const auto buffer = [&](uint64_t offset, int64_t row_bytes) {
    const auto bytes = static_cast<size_t>(size * row_bytes);
    if (batch.memory == nullptr) {
      return HostBuffer(bytes, HostBuffer::Fill::kUninitialised);
    }
    return HostBuffer::Adopt(batch.memory->bytes().subspan(offset, bytes),
                             batch.memory);
  };
  batch.observations = buffer(layout.observations, row.observations);
  batch.next_observations =
      buffer(layout.next_observations, row.next_observations);
  batch.actions = buffer(layout.actions, row.actions);
  batch.frames = buffer(layout.frames, row.frames);
  batch.next_frames = buffer(layout.next_frames, row.next_frames);
}

std::optional<BatchTarget> BatchAssembler::TargetOf(
    const BatchAssembly& assembly, int64_t first_row, int64_t count) const {
  if (assembly.batch.memory == nullptr) return std::nullopt;
  const Layout layout(options_.batch_size,
                      assembly.batch.form.BytesOf(options_.shape));
  BatchTarget target{{}, assembly.batch.memory};
  const auto room_of = [&](int64_t row) {
    return layout.segments +
           static_cast<uint64_t>(row) * layout.segment_bytes_per_row;
  };
  uint64_t segments = room_of(first_row);
  const uint64_t end = room_of(first_row + count);
  // a reply with fewer rows than requested may have used the others' room
  for (const BatchAssembly::Part& part : assembly.parts) {
    const std::span<const std::byte> used = part.message.SegmentsInMemory();
    if (used.empty()) continue;
    const auto first =
        static_cast<uint64_t>(used.data() - target.memory->bytes().data());
    const uint64_t last = first + used.size();
    if (first < end && last > segments) segments = std::min(last, end);
  }
  target.place = {.memory = target.memory->handle(),
                  .observations = layout.observations,
                  .next_observations = layout.next_observations,
                  .actions = layout.actions,
                  .frames = layout.frames,
                  .next_frames = layout.next_frames,
                  .segments = segments,
                  .segments_bytes = end - segments,
                  .first_row = static_cast<uint32_t>(first_row)};
  return target;
}

void BatchAssembler::Finish(std::shared_ptr<BatchAssembly> assembly) {
  bool is_decoded = true;
  for (const BatchAssembly::Part& part : assembly->parts) {
    is_decoded &=
        options_.shape.frame_bytes == 0 ||
        (part.message.AreRowsInMemory() && !part.message.has_segments());
  }
  if (is_decoded || options_.decode_threads == 0) {
    Fill(*assembly, is_decoded ? &unused_room_ : nullptr);
    options_.on_ready(std::move(assembly->batch));
    return;
  }
  const MutexLock lock(mutex_);
  received_.push_back(std::move(assembly));
  changed_.NotifyOne();
}

void BatchAssembler::Decode() {
  try {
    LowerPriority(kDecodeLevels);
    FrameRoom room;
    while (true) {
      std::shared_ptr<BatchAssembly> assembly;
      {
        const MutexLock lock(mutex_);
        while (received_.empty() && !is_closed_) changed_.Wait(mutex_);
        if (is_closed_) return;
        assembly = std::move(received_.front());
        received_.pop_front();
      }
      Fill(*assembly, &room);
      options_.on_ready(std::move(assembly->batch));
    }
  } catch (...) {
    options_.on_failure();
  }
}

void BatchAssembler::Fill(BatchAssembly& assembly, FrameRoom* room) const {
  Batch& batch = assembly.batch;
  for (BatchAssembly::Part& part : assembly.parts) {
    if (room == &unused_room_ || (room != nullptr && options_.fills_frames)) {
      batch.Take(part.message, part.first_row, part.shard, part.share, *room);
      continue;
    }
    if (room != nullptr) part.message.DecodeFrames(*room);
    batch.TakeCompressed(std::move(part.message), part.first_row, part.shard,
                         part.share);
  }
  batch.SetWeights(options_.importance.At(batch.total_steps));
}

}  // namespace replicant::replay
