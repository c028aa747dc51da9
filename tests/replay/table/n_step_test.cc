#include "replay/table/n_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace replicant::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;

constexpr StepShape kShape = {};

// A chunk whose step t has reward 10^t; d is 1, or `last_discount` at its end.
StoredChunk& AddChunk(FrameStore& store, int64_t first_step, int64_t num_steps,
                      bool ends, float last_discount = 1.0f) {
  ChunkBuilder builder(kShape, 1, first_step);
  float reward = 1.0f;
  for (int64_t t = 0; t < first_step; ++t) reward *= 10.0f;
  for (int64_t i = 0; i < num_steps; ++i, reward *= 10.0f) {
    builder.AddStep({}, {}, reward, i + 1 == num_steps ? last_discount : 1.0f);
  }
  if (ends) builder.AddLastObservation({});
  auto chunk = std::make_shared<Chunk>(builder.Finish({}), kShape);
  chunk->serial = store.last_serial() + 1;
  return store.Add(std::make_shared<StoredChunk>(std::move(chunk)));
}

// Chunks of one episode, with rows [num_steps...], the last one ending it.
std::vector<NStepItem> ItemsOf(FrameStore& store, const NStepConfig& config,
                               const std::vector<int64_t>& sizes,
                               float last_discount) {
  NStepAssembler assembler(config, &store);
  std::vector<NStepItem> items;
  StoredChunk* previous = nullptr;
  int64_t first_step = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool ends = i + 1 == sizes.size();
    StoredChunk& chunk = AddChunk(store, first_step, sizes[i], ends,
                                  ends ? last_discount : 1.0f);
    if (previous != nullptr) previous->next = &chunk;
    previous = &chunk;
    assembler.Append(chunk, &items);
    store.Release(chunk);
    first_step += sizes[i];
  }
  return items;
}

struct Sums {
  int64_t step, n;
  float reward, discount;
};
std::vector<Sums> SumsOf(const std::vector<NStepItem>& items) {
  std::vector<Sums> sums;
  sums.reserve(items.size());
  for (const NStepItem& item : items) {
    sums.push_back({item.step, item.n, item.reward, item.discount});
  }
  return sums;
}

auto IsItem(int64_t step, int64_t n, float reward, float discount) {
  return FieldsAre(step, n, FloatNear(reward, 1e-4f),
                   FloatNear(discount, 1e-6f));
}

// gamma = 1/2: R = r_{t+1} + r_{t+2} / 2 + ...; the tail has fewer steps and
// bootstraps at o_T.
TEST(NStepTest, ATruncatedEpisodeBootstrapsAtItsLastObservation) {
  FrameStore store;
  const auto items =
      ItemsOf(store, {.n_step = 2, .discount = 0.5}, {2, 2}, 1.0f);
  EXPECT_THAT(
      SumsOf(items),
      ElementsAre(IsItem(0, 2, 1 + 5, 0.25f), IsItem(1, 2, 10 + 50, 0.25f),
                  IsItem(2, 2, 100 + 500, 0.25f), IsItem(3, 1, 1000, 0.5f)));
}

TEST(NStepTest, ATerminatedEpisodeDoesNotBootstrapWhereItsEndIsInTheSum) {
  FrameStore store;
  const auto items =
      ItemsOf(store, {.n_step = 2, .discount = 0.5}, {2, 1}, 0.0f);
  EXPECT_THAT(SumsOf(items),
              ElementsAre(IsItem(0, 2, 6, 0.25f), IsItem(1, 2, 60, 0.0f),
                          IsItem(2, 1, 100, 0.0f)));
}

TEST(NStepTest, AnEpisodeShorterThanNGivesAnItemPerStep) {
  FrameStore store;
  const auto items =
      ItemsOf(store, {.n_step = 5, .discount = 1.0}, {1, 1}, 1.0f);
  EXPECT_THAT(SumsOf(items),
              ElementsAre(IsItem(0, 2, 11, 1.0f), IsItem(1, 1, 10, 1.0f)));
}

// A window begins at every second step; the last ones are shorter. Their R and
// D belong to the return over their steps.
TEST(NStepTest, WindowsOverlapAndEndWithTheEpisode) {
  FrameStore store;
  const NStepConfig config = {.discount = 1.0, .window = 3, .period = 2};
  EXPECT_THAT(SumsOf(ItemsOf(store, config, {2, 3}, 1.0f)),
              ElementsAre(IsItem(0, 3, 111, 1.0f), IsItem(2, 3, 11100, 1.0f),
                          IsItem(4, 1, 10000, 1.0f)));
}

TEST(NStepTest, AnEpisodeShorterThanAWindowGivesOne) {
  FrameStore store;
  const NStepConfig config = {.discount = 1.0, .window = 5, .period = 5};
  EXPECT_THAT(SumsOf(ItemsOf(store, config, {1, 1}, 0.0f)),
              ElementsAre(IsItem(0, 2, 11, 0.0f)));
}

TEST(NStepTest, TheLastObservationMayComeAlone) {
  FrameStore store;
  const auto items =
      ItemsOf(store, {.n_step = 2, .discount = 1.0}, {1, 0}, 1.0f);
  EXPECT_THAT(SumsOf(items), ElementsAre(IsItem(0, 1, 1, 1.0f)));
  EXPECT_EQ(items[0].num_chunks, 2);
}

// With a stack of 3, item t needs the observations from t - 2, but none before
// the episode.
TEST(NStepTest, ItemsSpanTheChunksOfTheirStackAndTheirLastObservation) {
  FrameStore store;
  const auto items = ItemsOf(store, {.n_step = 1, .discount = 1.0, .stack = 3},
                             {2, 2, 2}, 1.0f);
  std::vector<std::pair<uint64_t, int64_t>> spans;
  spans.reserve(items.size());
  for (const NStepItem& item : items) {
    spans.push_back({item.first->serial, item.num_chunks});
  }
  // the observations 0 1 | 2 3 | 4 5 6 lie in the chunks 1 to 3
  using Span = std::pair<uint64_t, int64_t>;
  EXPECT_THAT(spans, ElementsAre(Span(1, 1), Span(1, 2), Span(1, 2), Span(1, 3),
                                 Span(2, 2), Span(2, 2)));
}

TEST(NStepTest, ItemsAloneHoldTheChunksOfAnEpisodeThatEnded) {
  FrameStore store;
  const auto items =
      ItemsOf(store, {.n_step = 1, .discount = 1.0}, {2, 2}, 1.0f);
  EXPECT_EQ(store.num_chunks(), 2);
  for (const NStepItem& item : items) {
    store.ReleaseRange(*item.first, item.num_chunks);
  }
  EXPECT_EQ(store.num_chunks(), 0);
  EXPECT_EQ(store.memory_bytes(), 0);
}

TEST(NStepTest, ResetForgetsTheOpenStepsAndTheirChunks) {
  FrameStore store;
  NStepAssembler assembler({.n_step = 3}, &store);
  std::vector<NStepItem> items;
  StoredChunk& chunk = AddChunk(store, 0, 2, /*ends=*/false);
  assembler.Append(chunk, &items);
  store.Release(chunk);
  EXPECT_THAT(items, IsEmpty());
  EXPECT_EQ(assembler.num_open_steps(), 2);
  EXPECT_EQ(store.num_chunks(), 1);
  assembler.Reset();
  EXPECT_EQ(assembler.num_open_steps(), 0);
  EXPECT_EQ(store.num_chunks(), 0);
}

TEST(NStepTest, RefusesSettingsOutsideTheirRange) {
  FrameStore store;
  const auto message = [&](const NStepConfig& config) -> std::string {
    try {
      const NStepAssembler assembler(config, &store);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no InvalidArgument";
  };
  EXPECT_EQ(message({.n_step = 0}), "n_step 0 is outside [1, 1000]");
  EXPECT_EQ(message({.stack = 65}), "stack 65 is outside [1, 64]");
  EXPECT_EQ(message({.window = 1001}), "window 1001 is outside [0, 1000]");
  EXPECT_EQ(message({.n_step = 9, .window = 8}),
            "n_step 9 is outside [1, window 8]: a reader computes n-step "
            "returns from the steps in a window");
  EXPECT_EQ(message({.window = 4, .period = 5}),
            "period 5 is outside [1, window 4]: there must be no gaps between "
            "windows");
  EXPECT_EQ(message({.window = 4, .period = 0}),
            "period 0 is outside [1, window 4]: there must be no gaps between "
            "windows");
  EXPECT_EQ(message({.n_step = 4, .period = 2}), "period 2 without a window");
  EXPECT_EQ(message({.discount = 1.5}), "discount 1.5 is outside [0, 1]");
}

}  // namespace
}  // namespace replicant::replay
