#include "replay/client/batch_assembler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "replay/table/shard.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

namespace replicant::replay {
namespace {

using testing::EpisodeMaker;
using testing::MakePixels;

constexpr int64_t kStack = 2;
constexpr int64_t kBatchSize = 8;

// The batches of an assembler, for a thread that waits for them.
class Outcome {
 public:
  void Take(Batch batch) {
    const MutexLock lock(mutex_);
    batch_ = std::move(batch);
    changed_.NotifyAll();
  }
  void Fail() {
    const MutexLock lock(mutex_);
    failure_ = std::current_exception();
    changed_.NotifyAll();
  }
  // Throws what the assembler has failed with.
  Batch Await() {
    const MutexLock lock(mutex_);
    while (!batch_ && !failure_) changed_.Wait(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    Batch batch = std::move(*batch_);
    batch_.reset();
    return batch;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<Batch> batch_ GUARDED_BY(mutex_);
  std::exception_ptr failure_ GUARDED_BY(mutex_);
};

struct Reply {
  bool is_spoilt = false;     // on its way
  int64_t num_requested = 0;  // more rows than it has
};

// Replies of a table in this process.
class BatchAssemblerTest : public ::testing::TestWithParam<int64_t> {
 protected:
  explicit BatchAssemblerTest(const EpisodeMaker& maker = MakePixels())
      : maker_(maker),
        shard_(testing::OpenTable(maker_, {.n_step = 1, .stack = kStack}),
               &Clock::Real()),
        assembler_(
            {.name = "test",
             .shape = maker_.shape,
             .batch_size = kBatchSize,
             .decode_threads = GetParam(),
             .on_ready = [this](Batch b) { outcome_.Take(std::move(b)); },
             .on_failure = [this] { outcome_.Fail(); }}) {
    uint64_t sequence = 0;
    for (auto& chunk : maker_.Chunks(/*episode=*/1, /*num_steps=*/9)) {
      EXPECT_EQ(shard_.TryInsert(/*writer=*/1, ++sequence, std::move(chunk)),
                InsertResult::kInserted);
    }
  }

  // Draws rows for an assembly, to memory if it has any.
  void Give(BatchAssembly& assembly, int32_t shard, double share,
            int64_t first_row, int64_t count, const Reply& reply = {}) {
    SampledBatch drawn;
    ASSERT_EQ(shard_.TrySample(/*table=*/0, count, "test", &drawn), count);
    const auto target = assembler_.TargetOf(
        assembly, first_row, std::max(count, reply.num_requested));
    const BatchTarget* place = target ? &*target : nullptr;
    rpc::Message payload =
        EncodeBatch(drawn, BatchState::kFull, maker_.shape, {.stack = kStack},
                    std::numeric_limits<size_t>::max(), place);
    if (reply.is_spoilt) {
      std::ranges::fill(payload[2].mutable_bytes(), std::byte{0});
    }
    assembly.parts.push_back(
        {shard, share, first_row,
         BatchMessage(std::move(payload), maker_.shape, place)});
    assembly.missing -= count;
  }

  void CheckFrames(const Batch& batch) const {
    FrameRoom room;
    const auto frame_bytes = static_cast<size_t>(maker_.shape.frame_bytes);
    for (int64_t i = 0; i < kBatchSize; ++i) {
      int64_t step = 0;
      std::memcpy(&step, batch.observations.data() + i * 16 + 8, sizeof(step));
      const ItemFrames stacks = batch.FramesOf(i, room);
      EXPECT_EQ(testing::Joined(stacks.frames, frame_bytes),
                maker_.Stack(1, step, kStack));
      EXPECT_EQ(testing::Joined(stacks.next_frames, frame_bytes),
                maker_.Stack(1, step + 1, kStack));
    }
  }

  const EpisodeMaker maker_;
  Shard shard_;
  Outcome outcome_;
  BatchAssembler assembler_;
};

TEST_P(BatchAssemblerTest, PartsOfSeveralServicesBecomeOneBatch) {
  for (const bool takes_memory : {true, false}) {
    auto assembly = assembler_.Begin({}, {.stack = kStack}, takes_memory);
    EXPECT_EQ(assembly->missing, kBatchSize);
    EXPECT_EQ(assembly->batch.memory != nullptr, takes_memory);
    Give(*assembly, /*shard=*/1, /*share=*/0.25, /*first_row=*/5, /*count=*/3);
    Give(*assembly, /*shard=*/0, /*share=*/0.75, /*first_row=*/0, /*count=*/5);
    EXPECT_EQ(assembly->missing, 0);
    assembler_.Finish(std::move(assembly));
    const Batch batch = outcome_.Await();
    ASSERT_EQ(batch.size, kBatchSize);
    // somebody else decodes what no thread here has decoded
    EXPECT_EQ(batch.compressed.empty(), GetParam() > 0);
    CheckFrames(batch);
    for (size_t r = 0; r < kBatchSize; ++r) {
      const bool is_first = r < 5;
      EXPECT_EQ(batch.shards[r], is_first ? 0 : 1);
      EXPECT_DOUBLE_EQ(batch.probabilities[r], (is_first ? 0.75 : 0.25) / 9);
    }
  }
}

class NoiseAssemblerTest : public BatchAssemblerTest {
 protected:
  NoiseAssemblerTest()
      : BatchAssemblerTest([] {
          EpisodeMaker maker = MakePixels();
          maker.has_noise = true;
          return maker;
        }()) {}
};

// Three rows of a reply used more than their share of the room for eight.
TEST_P(NoiseAssemblerTest, FramesOfAPartialReplyOutliveTheNext) {
  auto assembly =
      assembler_.Begin({}, {.stack = kStack}, /*takes_memory=*/true);
  Give(*assembly, /*shard=*/0, /*share=*/1.0, /*first_row=*/0, /*count=*/3,
       {.num_requested = kBatchSize});
  const size_t frames_bytes =
      2 * kStack * static_cast<size_t>(maker_.shape.frame_bytes);
  EXPECT_GT(assembly->parts[0].message.SegmentsInMemory().size(),
            3 * frames_bytes / 2);
  Give(*assembly, 0, 1.0, 3, 1, {.num_requested = 5});
  EXPECT_FALSE(assembly->parts[1].message.SegmentsInMemory().empty());
  Give(*assembly, 0, 1.0, 4, 4);
  assembler_.Finish(std::move(assembly));
  CheckFrames(outcome_.Await());
}

TEST_P(BatchAssemblerTest, MemoryOfABatchThatCameBackIsUsedAgain) {
  auto first = assembler_.Begin({}, {.stack = kStack}, /*takes_memory=*/true);
  const rpc::SharedMemory* memory = first->batch.memory.get();
  const auto again = assembler_.Begin(std::move(first->batch),
                                      {.stack = kStack}, /*takes_memory=*/true);
  EXPECT_EQ(again->batch.memory.get(), memory);
  // not for stacks of another size
  const auto other =
      assembler_.Begin(std::move(again->batch), {.stack = kStack + 1},
                       /*takes_memory=*/true);
  EXPECT_NE(other->batch.memory, nullptr);
  EXPECT_EQ(other->batch.frames.size_bytes(),
            static_cast<size_t>(kBatchSize * (kStack + 1) *
                                maker_.shape.frame_bytes));
}

TEST_P(BatchAssemblerTest, ABrokenPartIsToldWhereItIsDecoded) {
  auto assembly =
      assembler_.Begin({}, {.stack = kStack}, /*takes_memory=*/false);
  Give(*assembly, 0, 1.0, 0, kBatchSize, {.is_spoilt = true});
  assembler_.Finish(std::move(assembly));
  EXPECT_THROW(
      {
        const Batch batch = outcome_.Await();
        FrameRoom room;
        static_cast<void>(batch.FramesOf(0, room));
      },
      IoError);
}

INSTANTIATE_TEST_SUITE_P(DecodeThreads, BatchAssemblerTest,
                         ::testing::Values(0, 1, 3));
INSTANTIATE_TEST_SUITE_P(DecodeThreads, NoiseAssemblerTest,
                         ::testing::Values(0, 1, 3));

}  // namespace
}  // namespace replicant::replay
