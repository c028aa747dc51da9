#include "learner/workloads/agent/transition_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/tensor/host_tensor.h"
#include "env/interleave.h"
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
  TableTransitions(bool is_compressed, const replay::NStepConfig& items)
      : form_(items.form()),
        is_compressed_(is_compressed),
        shard_(OpenTable(maker_, items), &Clock::Real()) {
    uint64_t sequence = 0;
    for (uint64_t episode = 1; episode <= 3; ++episode) {
      for (auto& chunk : maker_.Chunks(episode, /*num_steps=*/9)) {
        EXPECT_EQ(shard_.TryInsert(/*writer=*/1, ++sequence, std::move(chunk)),
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
        EncodeBatch(drawn, replay::BatchState::kFull, shape, form_,
                    std::numeric_limits<size_t>::max());
    if (is_damaged) {
      std::ranges::fill(payload[2].mutable_bytes(), std::byte{0});
    }
    replay::BatchMessage message(std::move(payload), shape);
    const auto buffer = [](int64_t row_bytes) {
      return HostBuffer(static_cast<size_t>(kBatch * row_bytes));
    };
    const replay::RowBytes row = form_.BytesOf(shape);
    batch->observations = buffer(row.observations);
    batch->next_observations = buffer(row.next_observations);
    batch->actions = buffer(row.actions);
    batch->frames = buffer(row.frames);
    batch->next_frames = buffer(row.next_frames);
    batch->Resize(kBatch, form_);
    if (is_compressed_) {
      batch->TakeCompressed(std::move(message), 0, 0, 1.0);
    } else {
      replay::FrameRoom room;
      batch->Take(message, 0, 0, 1.0, room);
    }
    for (replay::ItemKey& key : batch->keys) key.generation += generation;
    std::fill(batch->shards.end() - num_prior, batch->shards.end(),
              replay::Batch::kPriorShard);
    return replay::ReadResult::kOk;
  }
  bool CanReadAhead() const override { return can_read_ahead; }
  void UpdatePriorities(const replay::Batch& /*batch*/,
                        std::span<const float> /*priorities*/) override {}
  void SetPaused(bool /*is_paused*/) override {}
  void StartCheckpoint(uint64_t /*id*/,
                       const std::filesystem::path& /*folder*/) override {}
  replay::CheckpointState PollCheckpoint() override {
    return replay::CheckpointState::kNotKept;
  }

  // The stack of frames of the observation `ahead` steps after that in `row`.
  std::vector<std::byte> Frames(const HostBuffer& observations, int64_t row,
                                int64_t ahead = 0) const {
    uint64_t place[2];
    std::memcpy(place, observations.data() + row * 16, sizeof(place));
    return maker_.Stack(place[0], static_cast<int64_t>(place[1]) + ahead,
                        kStack);
  }
  // The image of the observation `ahead` steps after that in `row`, from its
  // frames.
  std::vector<std::byte> Image(const HostBuffer& observations, int64_t row,
                               int64_t ahead = 0) const {
    const auto frames = Frames(observations, row, ahead);
    std::vector<std::byte> image(frames.size());
    env::InterleaveFrames(frames, kStack, image);
    return image;
  }

  bool is_damaged = false;
  bool can_read_ahead = true;
  int num_prior = 0;        // the last rows
  uint32_t generation = 0;  // of the first items

 private:
  const replay::BatchForm form_;
  const bool is_compressed_;
  const EpisodeMaker maker_ = MakePixels();
  replay::Shard shard_;
};

class PipelineTest : public ::testing::TestWithParam<bool> {
 protected:
  // Pictures of 10x10 pixels.
  // With windows all of their observations, or `window_observations`.
  explicit PipelineTest(const replay::NStepConfig& items,
                        std::vector<agents::ImageSpec> images = {},
                        int64_t window_observations = 0)
      : items_(items),
        spec_({.task = {.has_pixels = true,
                        .observation = images.empty()
                                           ? Shape({10, 10, 3 * kStack})
                                           : Shape({300 * kStack}),
                        .images = std::move(images),
                        .state_size = 4,
                        .frame_stack = kStack,
                        .action_minimum = {-1.0, -1.0},
                        .action_maximum = {1.0, 1.0}},
               .discount = items.discount,
               .n_step = items.n_step,
               .window = items.window,
               .window_observations =
                   window_observations > 0 ? window_observations : items.window,
               .has_prior = true}),
        source_(GetParam(), items),
        pipeline_(spec_, kBatch, /*num_threads=*/2, &source_) {
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
  const MutableTensorView& View(const std::string& name) const {
    const auto& specs = pipeline_.specs();
    const auto found =
        std::ranges::find(specs, name, &replicator::InputSpec::name);
    return views_.at(static_cast<size_t>(found - specs.begin()));
  }
  // Whether row `i` of an input holds the state in a row of `states`.
  bool HasState(const std::string& name, int64_t i, const HostBuffer& states,
                int64_t row) const {
    return std::memcmp(View(name).data() + i * 16, states.data() + row * 16,
                       16) == 0;
  }
  // Steps from o_t to observation `i` of the window of a row; 0 if it has none.
  int64_t StepsAhead(int64_t row, int64_t i) const {
    const MutableTensorView& follows = View("window_follows");
    const int64_t window = follows.shape()[2];
    const int64_t first = (row * follows.shape()[1] + i) * window;
    int64_t ahead = 0;
    for (int64_t step = 0; step < window; ++step) {
      const float value =
          follows.Span<float>()[static_cast<size_t>(first + step)];
      if (value == 0.0F) continue;
      EXPECT_EQ(value, 1.0F);
      EXPECT_EQ(ahead, 0) << "two steps lead to one observation";
      ahead = step + 1;
    }
    return ahead;
  }
  // Image `i` of an input.
  std::vector<std::byte> Image(const std::string& name, int64_t i) const {
    constexpr int64_t kBytes = 300 * kStack;
    const std::byte* from = View(name).data() + i * kBytes;
    return {from, from + kBytes};
  }

  const replay::NStepConfig items_;
  const agents::LearningSpec spec_;
  TableTransitions source_;
  TransitionPipeline pipeline_;
  std::vector<HostTensor> tensors_;
  std::vector<MutableTensorView> views_;
};

class TransitionPipelineTest : public PipelineTest {
 protected:
  TransitionPipelineTest() : PipelineTest({.n_step = 3, .stack = kStack}) {}
};

TEST_P(TransitionPipelineTest, ObservationsAreTheirFrames) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Next(), replicator::NextResult::kOk);
    const replay::Batch& batch = pipeline_.batch();
    for (int64_t row = 0; row < kBatch; ++row) {
      ASSERT_EQ(Image("observation", row),
                source_.Image(batch.observations, row));
      ASSERT_EQ(Image("next_observation", row),
                source_.Image(batch.next_observations, row));
      ASSERT_TRUE(HasState("state", row, batch.observations, row));
      ASSERT_TRUE(HasState("next_state", row, batch.next_observations, row));
    }
  }
}

// catches priorities that are sent for the items of the batch after
TEST_P(TransitionPipelineTest, ABatchStaysWhileTheNextOneIsReadAhead) {
  ASSERT_EQ(Next(), replicator::NextResult::kOk);
  const auto keys = pipeline_.batch().keys;
  const std::vector<float> returns(pipeline_.returns().begin(),
                                   pipeline_.returns().end());
  ASSERT_EQ(pipeline_.NextAhead({}, views_), replicator::NextResult::kOk);
  EXPECT_EQ(pipeline_.batch().keys, keys);
  EXPECT_THAT(pipeline_.returns(), ::testing::ElementsAreArray(returns));
  pipeline_.UseAhead();
  EXPECT_NE(pipeline_.batch().keys, keys);
  for (int64_t row = 0; row < kBatch; ++row) {
    ASSERT_EQ(Image("observation", row),
              source_.Image(pipeline_.batch().observations, row));
  }
}

// such as a run in lockstep
TEST_P(TransitionPipelineTest, ASourceMayRefuseToBeReadAhead) {
  source_.can_read_ahead = false;
  EXPECT_EQ(pipeline_.NextAhead({}, views_), replicator::NextResult::kTimeout);
}

// A half of acted rows doubles the weight of the others.
TEST_P(TransitionPipelineTest, RowsOfPriorDataHaveTheirWeight) {
  ASSERT_EQ(Next(), replicator::NextResult::kOk);
  const std::span<const float> weights = View("prior_weight").Span<float>();
  EXPECT_THAT(weights, ::testing::Each(0.0F));
  source_.num_prior = 2;
  ASSERT_EQ(Next(), replicator::NextResult::kOk);
  EXPECT_THAT(weights, ::testing::ElementsAre(0, 0, 0, 0, 0, 0, 4, 4));
  source_.num_prior = kBatch;
  ASSERT_EQ(Next(), replicator::NextResult::kOk);
  EXPECT_THAT(weights, ::testing::Each(1.0F));
}

TEST_P(TransitionPipelineTest, DamagedFramesAreAnError) {
  source_.is_damaged = true;
  EXPECT_THROW(static_cast<void>(Next()), IoError);
}

// The frame of a step is that of two images, one after the other.
class TwoImagesPipelineTest : public PipelineTest {
 protected:
  static constexpr size_t kSizes[] = {10 * 4 * 3, 5 * 12 * 3};
  explicit TwoImagesPipelineTest(int64_t window = 0)
      : PipelineTest({.n_step = 3, .stack = kStack, .window = window},
                     {{"pixels/a", Shape({10, 4, 3 * kStack})},
                      {"pixels/b", Shape({5, 12, 3 * kStack})}}) {}

  // The images of a stack of frames, one after the other.
  static std::vector<std::byte> Images(const std::vector<std::byte>& stack) {
    std::vector<std::byte> images;
    size_t begin = 0;
    for (const size_t size : kSizes) {
      std::vector<std::byte> frames, image(kStack * size);
      for (size_t k = 0; k < kStack; ++k) {
        const auto frame =
            stack.begin() + static_cast<std::ptrdiff_t>(300 * k + begin);
        frames.insert(frames.end(), frame,
                      frame + static_cast<std::ptrdiff_t>(size));
      }
      env::InterleaveFrames(frames, kStack, image);
      images.insert(images.end(), image.begin(), image.end());
      begin += size;
    }
    return images;
  }
};

TEST_P(TwoImagesPipelineTest, EachIsItsFrames) {
  ASSERT_EQ(Next(), replicator::NextResult::kOk);
  const replay::Batch& batch = pipeline_.batch();
  for (int64_t row = 0; row < kBatch; ++row) {
    ASSERT_EQ(Image("observation", row),
              Images(source_.Frames(batch.observations, row)));
    ASSERT_EQ(Image("next_observation", row),
              Images(source_.Frames(batch.next_observations, row)));
  }
}

class TwoImagesWindowTest : public TwoImagesPipelineTest {
 protected:
  static constexpr int64_t kWindow = 4;
  TwoImagesWindowTest() : TwoImagesPipelineTest(kWindow) {}
};

TEST_P(TwoImagesWindowTest, EachIsItsFramesInEveryStep) {
  ASSERT_EQ(Next(), replicator::NextResult::kOk);
  const replay::Batch& batch = pipeline_.batch();
  for (int64_t row = 0; row < kBatch; ++row) {
    const int64_t k = batch.num_steps[static_cast<size_t>(row)];
    for (int64_t i = 0; i < k; ++i) {
      ASSERT_EQ(Image("window_observation", row * kWindow + i),
                Images(source_.Frames(batch.observations, row * (kWindow + 1),
                                      StepsAhead(row, i))));
    }
  }
}

// Windows of four steps, with returns of two, in episodes of nine.
class WindowPipelineTest : public PipelineTest {
 protected:
  static constexpr int64_t kWindow = 4;
  explicit WindowPipelineTest(int64_t window_observations = kWindow)
      : PipelineTest(
            {.n_step = 2, .discount = 0.9, .stack = kStack, .window = kWindow},
            /*images=*/{}, window_observations),
        num_observations_(window_observations) {}

  // Checks the inputs of a drawn row against the steps of its item.
  void CheckRow(int64_t row) const {
    const replay::Batch& batch = pipeline_.batch();
    const int64_t k = batch.num_steps[static_cast<size_t>(row)];
    const int64_t first = row * (kWindow + 1);
    ASSERT_EQ(Image("observation", row),
              source_.Image(batch.observations, first, 0));
    ASSERT_TRUE(HasState("state", row, batch.observations, first));
    const auto mask = View("window_mask").Span<float>();
    for (int64_t step = 0; step < kWindow; ++step) {
      ASSERT_EQ(mask[static_cast<size_t>(row * kWindow + step)],
                step < k ? 1.0F : 0.0F);
    }
    std::set<int64_t> seen;
    for (int64_t i = 0; i < num_observations_; ++i) {
      const int64_t ahead = StepsAhead(row, i);
      const int64_t index = row * num_observations_ + i;
      if (i >= k) {
        ASSERT_EQ(ahead, 0);
        ASSERT_EQ(Image("window_observation", index),
                  std::vector<std::byte>(300 * kStack));
        continue;
      }
      const int64_t bootstrap = std::min<int64_t>(2, k);
      ASSERT_EQ(ahead == bootstrap, i == 0);
      ASSERT_GE(ahead, 1);
      ASSERT_LE(ahead, k);
      ASSERT_TRUE(seen.insert(ahead).second) << ahead << " twice";
      ASSERT_EQ(Image("window_observation", index),
                source_.Image(batch.observations, first, ahead));
      ASSERT_TRUE(
          HasState("window_state", index, batch.observations, first + ahead));
    }
  }

  const int64_t num_observations_;
};

TEST_P(WindowPipelineTest, ObservationsAndMaskFollowTheSteps) {
  bool has_short = false;
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Next(), replicator::NextResult::kOk);
    for (int64_t row = 0; row < kBatch; ++row) {
      has_short =
          has_short ||
          pipeline_.batch().num_steps[static_cast<size_t>(row)] < kWindow;
      ASSERT_NO_FATAL_FAILURE(CheckRow(row));
    }
  }
  EXPECT_TRUE(has_short);
}

class FewObservationsPipelineTest : public WindowPipelineTest {
 protected:
  FewObservationsPipelineTest()
      : WindowPipelineTest(/*window_observations=*/2) {}
};

// Steps 1, 3 and 4 of a whole window come second equally often; a draw of the
// same item again draws anew.
TEST_P(FewObservationsPipelineTest, OthersAreDrawnFromTheWholeWindow) {
  std::map<int64_t, int> counts;
  int num_whole = 0;
  for (int i = 0; i < 150; ++i) {
    ASSERT_EQ(Next(), replicator::NextResult::kOk);
    for (int64_t row = 0; row < kBatch; ++row) {
      ASSERT_NO_FATAL_FAILURE(CheckRow(row));
      if (pipeline_.batch().num_steps[static_cast<size_t>(row)] < kWindow) {
        continue;
      }
      ++num_whole;
      ++counts[StepsAhead(row, 1)];
    }
  }
  ASSERT_GT(num_whole, 500);
  // five standard deviations of a third
  const double width = 5.0 * std::sqrt(num_whole * 2.0 / 9.0);
  for (const int64_t ahead : {1, 3, 4}) {
    EXPECT_NEAR(counts[ahead], num_whole / 3.0, width) << ahead;
  }
  EXPECT_EQ(counts.size(), 3U);
}

// A process that has restored its table gives new items other generations than
// one that was not stopped.
TEST_P(FewObservationsPipelineTest, GenerationsDoNotChangeTheDraw) {
  TableTransitions restored(GetParam(), items_);
  restored.generation = 1 << 20;
  TransitionPipeline pipeline(spec_, kBatch, /*num_threads=*/2, &restored);
  const std::span<const float> follows = View("window_follows").Span<float>();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Next(), replicator::NextResult::kOk);
    const std::vector<float> expected(follows.begin(), follows.end());
    const auto keys = pipeline_.batch().keys;
    ASSERT_EQ(pipeline.Next(Clock::Real().Now(), views_),
              replicator::NextResult::kOk);
    ASSERT_EQ(pipeline.batch().keys[0].slot, keys[0].slot);
    ASSERT_NE(pipeline.batch().keys[0], keys[0]);
    ASSERT_THAT(follows, ::testing::ElementsAreArray(expected));
  }
}

TEST_P(WindowPipelineTest, TransitionsAreThoseOfTheFirstSteps) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Next(), replicator::NextResult::kOk);
    const replay::Batch& batch = pipeline_.batch();
    const auto reward = View("reward").Span<float>();
    const auto discount = View("discount").Span<float>();
    const auto action = View("action").Span<float>();
    const auto window_action = View("window_action").Span<float>();
    for (size_t row = 0; row < kBatch; ++row) {
      const float* r = &batch.rewards[row * kWindow];
      const float* d = &batch.discounts[row * kWindow];
      const bool has_two = batch.num_steps[row] > 1;
      EXPECT_FLOAT_EQ(reward[row], has_two ? r[0] + 0.9F * d[0] * r[1] : r[0]);
      EXPECT_FLOAT_EQ(discount[row],
                      has_two ? 0.81F * d[0] * d[1] : 0.9F * d[0]);
      for (size_t a = 0; a < 2; ++a) {
        EXPECT_EQ(action[2 * row + a], window_action[2 * row * kWindow + a]);
      }
    }
    EXPECT_THAT(pipeline_.returns(), ::testing::ElementsAreArray(reward));
    EXPECT_THAT(pipeline_.discounts(), ::testing::ElementsAreArray(discount));
  }
}

INSTANTIATE_TEST_SUITE_P(Frames, TransitionPipelineTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Compressed" : "Decoded";
                         });

INSTANTIATE_TEST_SUITE_P(Frames, TwoImagesPipelineTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Compressed" : "Decoded";
                         });

INSTANTIATE_TEST_SUITE_P(Frames, TwoImagesWindowTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Compressed" : "Decoded";
                         });

INSTANTIATE_TEST_SUITE_P(Frames, FewObservationsPipelineTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Compressed" : "Decoded";
                         });

INSTANTIATE_TEST_SUITE_P(Frames, WindowPipelineTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Compressed" : "Decoded";
                         });

}  // namespace
}  // namespace replicant::learner
