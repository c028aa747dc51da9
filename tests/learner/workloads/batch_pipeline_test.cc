#include "learner/workloads/agent/batch_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/tensor/host_tensor.h"
#include "replay/table/shard.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

namespace replicant::learner {
namespace {

using replay::testing::EpisodeMaker;
using replay::testing::MakePixels;
using replay::testing::OpenTable;

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(FrameInterleaverTest, FramesBecomeChannels) {
  // 2 frames of 2 pixels; tens: frame, ones: pixel
  const auto frames = Bytes({11, 12, 13, 14, 15, 16, 21, 22, 23, 24, 25, 26});
  std::vector<std::byte> out(frames.size());
  FrameInterleaver(/*stack=*/2).Run(frames, out);
  EXPECT_EQ(out, Bytes({11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26}));
}

TEST(FrameInterleaverTest, EveryByteFindsItsPlace) {
  for (const int64_t stack : {1, 2, 3, 4, 16}) {
    const FrameInterleaver interleaver(stack);
    for (const int64_t pixels : {1, 5, 20, 21, 64, 4096}) {
      std::vector<std::byte> frames(static_cast<size_t>(stack * pixels * 3));
      RandomStream random(7, "frames");
      for (std::byte& value : frames) {
        value = static_cast<std::byte>(random() & 0xFF);
      }
      std::vector<std::byte> out(frames.size()), wanted(frames.size());
      for (int64_t f = 0; f < stack; ++f) {
        for (int64_t p = 0; p < pixels; ++p) {
          for (int64_t c = 0; c < 3; ++c) {
            wanted[static_cast<size_t>((p * stack + f) * 3 + c)] =
                frames[static_cast<size_t>((f * pixels + p) * 3 + c)];
          }
        }
      }
      interleaver.Run(frames, out);
      EXPECT_TRUE(out == wanted) << stack << " frames of " << pixels;
    }
  }
}

TEST(FrameInterleaverTest, RefusesOtherSizes) {
  const FrameInterleaver interleaver(/*stack=*/2);
  std::vector<std::byte> frames(12), out(12);
  EXPECT_THROW(interleaver.Run(frames, std::span(out).first(6)),
               InvalidArgument);
  EXPECT_THROW(
      interleaver.Run(std::span(frames).first(9), std::span(out).first(9)),
      InvalidArgument);
}

constexpr int64_t kBatch = 8;
constexpr int64_t kStack = 2;

// Batches drawn from a table in this process, whose frames are decoded or not.
class TableTransitions : public TransitionSource {
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
        EncodeBatch(drawn, replay::BatchState::kFull, shape, kStack,
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
    batch->Resize(kBatch, kStack);
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
  InputPart PollCheckpoint() override { return InputPart::kNone; }

  // What the frames of an observation of (episode, step) become.
  std::vector<std::byte> Image(const HostBuffer& observations,
                               int64_t row) const {
    uint64_t place[2];
    std::memcpy(place, observations.data() + row * 16, sizeof(place));
    const auto frames =
        maker_.Stack(place[0], static_cast<int64_t>(place[1]), kStack);
    std::vector<std::byte> image(frames.size());
    FrameInterleaver(kStack).Run(frames, image);
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
