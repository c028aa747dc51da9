#include "learner/workloads/agent/batch_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/tensor/host_tensor.h"
#include "core/tensor/interleave.h"
#include "replay/table/shard.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

namespace replicant::learner {
namespace {

using replay::testing::EpisodeMaker;
using replay::testing::MakePixels;
using replay::testing::OpenTable;

constexpr int64_t kBatch = 8;
constexpr int64_t kStack = 2;

// Batches drawn from a table in this process, whose frames are decoded or not.
class TableTransitions : public replay::BatchSource {
 public:
  explicit TableTransitions(bool is_compressed)
      : is_compressed_(is_compressed),
        shard_(OpenTable(maker_, {.n_step = 3, .stack = kStack}),
               &Clock::Real()) {
    uint64_t sequence = 0;
    for (uint64_t episode = 1; episode <= 3; ++episode) {
      for (auto& group : maker_.Groups(episode, /*num_steps=*/9)) {
        EXPECT_EQ(shard_.TryInsert(/*writer=*/1, ++sequence, std::move(group)),
                  replay::InsertResult::kInserted);
      }
    }
  }

  replay::ReadResult Next(Clock::TimePoint /*deadline*/,
                          replay::Batch* batch) override {
    const replay::StepShape& shape = maker_.shape;
    replay::SampledBatch drawn;
    EXPECT_EQ(shard_.TrySample(/*table=*/0, kBatch, "test", &drawn), kBatch);
    rpc::Message payload =
        EncodeBatch(drawn, replay::BatchState::kFull, shape, {.stack = kStack},
                    std::numeric_limits<size_t>::max());
    if (is_damaged) {
      std::ranges::fill(payload[2].mutable_bytes(), std::byte{0});
    }
    replay::BatchMessage message(std::move(payload), shape);
    const auto buffer = [](int64_t row_bytes) {
      return HostBuffer(static_cast<size_t>(kBatch * row_bytes));
    };
    batch->observations = buffer(shape.observation_bytes);
    batch->next_observations = buffer(shape.observation_bytes);
    batch->actions = buffer(shape.action_bytes);
    batch->frames = buffer(kStack * shape.frame_bytes);
    batch->next_frames = buffer(kStack * shape.frame_bytes);
    batch->Resize(kBatch, {.stack = kStack});
    if (is_compressed_) {
      batch->TakeCompressed(std::move(message), 0, 0, 1.0);
    } else {
      replay::FrameDecoder decoder;
      batch->Take(message, 0, 0, 1.0, decoder);
    }
    return replay::ReadResult::kOk;
  }
  void UpdatePriorities(const replay::Batch& /*batch*/,
                        std::span<const float> /*priorities*/) override {}
  void SetPaused(bool /*is_paused*/) override {}
  void StartCheckpoint(uint64_t /*id*/,
                       const std::filesystem::path& /*folder*/) override {}
  replay::CheckpointState PollCheckpoint() override {
    return replay::CheckpointState::kNotKept;
  }

  // The image of the observation in `row`, from its frames.
  std::vector<std::byte> Image(const HostBuffer& observations,
                               int64_t row) const {
    uint64_t place[2];
    std::memcpy(place, observations.data() + row * 16, sizeof(place));
    const auto frames =
        maker_.Stack(place[0], static_cast<int64_t>(place[1]), kStack);
    std::vector<std::byte> image(frames.size());
    InterleaveFrames(frames, kStack, image);
    return image;
  }

  bool is_damaged = false;

 private:
  const bool is_compressed_;
  const EpisodeMaker maker_ = MakePixels();
  replay::Shard shard_;
};

class TransitionPipelineTest : public ::testing::TestWithParam<bool> {
 protected:
  // Pictures of 10x10 pixels.
  TransitionPipelineTest()
      : pipeline_({.has_pixels = true,
                   .observation = Shape({10, 10, 3 * kStack}),
                   .frame_stack = kStack,
                   .action_minimum = {-1.0, -1.0},
                   .action_maximum = {1.0, 1.0}},
                  kBatch, /*num_threads=*/2, &source_) {
    for (const auto& spec : pipeline_.specs()) {
      tensors_.emplace_back(spec.dtype, spec.shape);
    }
    for (HostTensor& tensor : tensors_) {
      views_.push_back(tensor.mutable_view());
    }
  }

  replicator::NextResult Next() {
    return pipeline_.Next(Clock::Real().Now(), views_);
  }
  std::vector<std::byte> Row(size_t tensor, int64_t row) const {
    constexpr int64_t kBytes = 300 * kStack;
    const std::byte* from = views_[tensor].data() + row * kBytes;
    return {from, from + kBytes};
  }

  TableTransitions source_{GetParam()};
  TransitionPipeline pipeline_;
  std::vector<HostTensor> tensors_;
  std::vector<MutableTensorView> views_;
};

TEST_P(TransitionPipelineTest, ObservationsAreTheirFrames) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Next(), replicator::NextResult::kOk);
    const replay::Batch& batch = pipeline_.batch();
    for (int64_t row = 0; row < kBatch; ++row) {
      ASSERT_EQ(Row(0, row), source_.Image(batch.observations, row));
      ASSERT_EQ(Row(4, row), source_.Image(batch.next_observations, row));
    }
  }
}

TEST_P(TransitionPipelineTest, DamagedFramesAreAnError) {
  source_.is_damaged = true;
  EXPECT_THROW(static_cast<void>(Next()), IoError);
}

INSTANTIATE_TEST_SUITE_P(Frames, TransitionPipelineTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Compressed" : "Decoded";
                         });

}  // namespace
}  // namespace replicant::learner
