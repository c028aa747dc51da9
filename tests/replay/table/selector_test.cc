#include "replay/table/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using replicant::testing::MessageOf;

constexpr SelectorKind kAllKinds[] = {
    SelectorKind::kPrioritized, SelectorKind::kUniform, SelectorKind::kFifo,
    SelectorKind::kLifo, SelectorKind::kLowestPriority};

struct Held {
  double priority;
  int order;
};
// The contents of a selector, kept the slow and obvious way.
using Model = std::map<int64_t, Held>;

// Whether `kind` may draw `slot` from `model`, and with which probability.
double ExpectedProbability(SelectorKind kind, double exponent,
                           const Model& model, int64_t slot) {
  const Held& held = model.at(slot);
  const auto size = static_cast<double>(model.size());
  // 0^0 is 1
  double total = 0.0;
  for (const auto& [other, other_held] : model) {
    total += std::pow(other_held.priority, exponent);
    const bool is_beaten =
        (kind == SelectorKind::kFifo && other_held.order < held.order) ||
        (kind == SelectorKind::kLifo && other_held.order > held.order) ||
        (kind == SelectorKind::kLowestPriority &&
         std::pair(other_held.priority, other_held.order) <
             std::pair(held.priority, held.order));
    if (is_beaten) return 0.0;
  }
  if (kind == SelectorKind::kPrioritized) {
    return total == 0.0 ? 1.0 / size
                        : std::pow(held.priority, exponent) / total;
  }
  if (kind == SelectorKind::kUniform) return 1.0 / size;
  return 1.0;
}

void Update(int64_t slot, double priority, Selector* selector) {
  selector->Update({&slot, 1}, {&priority, 1});
}

// Catches a selector that loses a slot, returns a removed one, orders wrongly
// after updates, or reports another probability than it draws with.
TEST(SelectorTest, AgreesWithAnObviousModelOverRandomOperations) {
  constexpr int64_t kCapacity = 37;
  for (int k = 0; k < 6; ++k) {
    const bool is_extra = k == 5;
    const SelectorKind kind =
        is_extra ? SelectorKind::kPrioritized : kAllKinds[k];
    const double exponent = is_extra ? 0.0 : 0.6;
    SCOPED_TRACE(ToString(kind));
    RandomStream random(5, ToString(kind));
    const auto selector = MakeSelector(kind, kCapacity, exponent);
    Model model;
    for (int i = 0; i < 5000; ++i) {
      const int64_t slot = random.UniformInt(kCapacity);
      // few values, so that priorities tie; zero among them
      const auto priority = static_cast<double>(random.UniformInt(4));
      if (!model.contains(slot)) {
        selector->Insert(slot, priority);
        model[slot] = {priority, i};
      } else if (random.UniformInt(2) == 0) {
        Update(slot, priority, selector.get());
        model[slot].priority = priority;
      } else {
        selector->Remove(slot);
        model.erase(slot);
      }
      if (!selector->CanSelect()) continue;
      Draw draws[3];
      selector->Select(random, draws);
      for (const Draw& draw : draws) {
        ASSERT_TRUE(model.contains(draw.slot));
        // weights are held to 2^-20
        ASSERT_NEAR(draw.probability,
                    ExpectedProbability(kind, exponent, model, draw.slot),
                    1e-5);
        ASSERT_GT(draw.probability, 0.0);
      }
    }
  }
}

TEST(SelectorTest, ManyUpdatesAtOnceEqualThoseOneByOne) {
  constexpr int64_t kCapacity = 100;
  for (const SelectorKind kind : kAllKinds) {
    SCOPED_TRACE(ToString(kind));
    const auto at_once = MakeSelector(kind, kCapacity, 0.6);
    const auto one_by_one = MakeSelector(kind, kCapacity, 0.6);
    for (int64_t slot = 0; slot < kCapacity; ++slot) {
      at_once->Insert(slot, 1.0);
      one_by_one->Insert(slot, 1.0);
    }
    // more than a block of them, with every slot several times
    RandomStream random(6, ToString(kind));
    std::vector<int64_t> slots;
    std::vector<double> priorities;
    for (int i = 0; i < 700; ++i) {
      slots.push_back(random.UniformInt(kCapacity));
      priorities.push_back(random.Uniform());
      Update(slots.back(), priorities.back(), one_by_one.get());
    }
    at_once->Update(slots, priorities);
    EXPECT_EQ(at_once->mass(), one_by_one->mass());
    RandomStream same(7, "draws");
    RandomStream again(7, "draws");
    while (at_once->CanSelect()) {
      Draw draw, expected;
      at_once->Select(same, {&draw, 1});
      one_by_one->Select(again, {&expected, 1});
      ASSERT_EQ(draw, expected);
      at_once->Remove(draw.slot);
      one_by_one->Remove(draw.slot);
    }
  }
}

TEST(SelectorTest, CanSelectExactlyWhenSomethingCanBeDrawn) {
  for (const SelectorKind kind : kAllKinds) {
    SCOPED_TRACE(ToString(kind));
    const auto selector = MakeSelector(kind, 2);
    EXPECT_FALSE(selector->CanSelect());
    selector->Insert(1, 0.0);
    EXPECT_TRUE(selector->CanSelect());
    Update(1, 2.0, selector.get());
    EXPECT_TRUE(selector->CanSelect());
    selector->Remove(1);
    EXPECT_FALSE(selector->CanSelect());
    EXPECT_EQ(selector->mass(), 0.0);
  }
}

// Draws are stratified, so the counts lie closer to their mean than for
// independent draws, for which five standard deviations are allowed.
void ExpectFrequencies(const Selector& selector,
                       const std::vector<double>& probabilities) {
  constexpr int kBatches = 2000, kBatch = 64;
  RandomStream random(20190201, "frequencies");
  std::vector<int> counts(probabilities.size(), 0);
  for (int i = 0; i < kBatches; ++i) {
    Draw draws[kBatch];
    selector.Select(random, draws);
    for (const Draw& draw : draws) {
      const auto slot = static_cast<size_t>(draw.slot);
      ++counts[slot];
      ASSERT_NEAR(draw.probability, probabilities[slot], 1e-5);
    }
  }
  constexpr double kDraws = kBatches * kBatch;
  for (size_t slot = 0; slot < counts.size(); ++slot) {
    const double p = probabilities[slot];
    EXPECT_NEAR(counts[slot], kDraws * p, 5.0 * std::sqrt(kDraws * p * (1 - p)))
        << "slot " << slot;
  }
}

TEST(SelectorTest, PrioritizedDrawsInProportionToPriorityToTheExponent) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 4, 0.5);
  const std::vector<double> priorities = {1.0, 0.0, 4.0, 25.0};
  for (size_t i = 0; i < 4; ++i) {
    selector->Insert(static_cast<int64_t>(i), priorities[i]);
  }
  EXPECT_EQ(selector->mass(), 8.0);
  ExpectFrequencies(*selector, {1.0 / 8, 0.0, 2.0 / 8, 5.0 / 8});
}

// As Reverb does. More slots than a word of bits, in several words.
TEST(SelectorTest, PrioritiesThatAreAllZeroDrawUniformly) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 200, 0.6);
  std::vector<double> probabilities(200, 0.0);
  for (int64_t slot = 0; slot < 200; ++slot) selector->Insert(slot, 1.0);
  for (int64_t slot = 0; slot < 200; ++slot) {
    const bool is_kept = slot % 5 == 0 || slot >= 190;
    if (is_kept) {
      Update(slot, 0.0, selector.get());
      probabilities[static_cast<size_t>(slot)] = 1.0 / 48;
    } else {
      selector->Remove(slot);
    }
  }
  EXPECT_EQ(selector->mass(), 0.0);
  ExpectFrequencies(*selector, probabilities);
  // the first priority above zero takes all draws again
  Update(195, 1e-3, selector.get());
  RandomStream random(1, "one");
  Draw draws[8];
  selector->Select(random, draws);
  for (const Draw& draw : draws) EXPECT_EQ(draw, (Draw{195, 1.0}));
}

TEST(SelectorTest, ExponentZeroDrawsUniformlyWhateverThePriorities) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 4, 0.0);
  for (const int64_t slot : {0, 1, 3}) selector->Insert(slot, 0.0);
  EXPECT_EQ(selector->mass(), 3.0);
  Update(3, 1e9, selector.get());
  ExpectFrequencies(*selector, {1.0 / 3, 1.0 / 3, 0.0, 1.0 / 3});
}

// Recorded before priorities could fade.
TEST(SelectorTest, DrawsWithoutAFadeStayWhatTheyWere) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 100, 1.0,
                                     {.base = 1.0, .floor = 0.5});
  for (int64_t slot = 0; slot < 100; ++slot) {
    selector->Insert(slot, static_cast<double>(slot % 7) / 4);
  }
  EXPECT_EQ(selector->mass(), 73.75);
  RandomStream random(2019, "recorded");
  Draw draws[6];
  selector->Select(random, draws);
  std::vector<int64_t> slots;
  for (const Draw& draw : draws) {
    slots.push_back(draw.slot);
    EXPECT_EQ(draw.probability, static_cast<double>(draw.slot % 7) / 4 / 73.75);
  }
  EXPECT_EQ(slots, (std::vector<int64_t>{4, 19, 46, 52, 76, 97}));
}

// Catches a probability or a mass that is not that of the faded priorities: a
// reader of several services computes importance weights from both. The ring
// of slots turns some fifty times, and some slots are removed early.
TEST(SelectorTest, FadingPrioritiesAgreeWithTheirDefinition) {
  constexpr int64_t kCapacity = 60;
  constexpr PriorityFade kFade = {.base = 0.97, .floor = 0.25};
  const auto selector =
      MakeSelector(SelectorKind::kPrioritized, kCapacity, 0.6, kFade);
  RandomStream random(8, "fade");
  Model model;
  for (int i = 0; i < 3000; ++i) {
    const int64_t slot = i % kCapacity;
    const auto priority = static_cast<double>(random.UniformInt(5));
    if (model.contains(slot)) selector->Remove(slot), model.erase(slot);
    selector->Insert(slot, priority);
    model[slot] = {priority, i};
    const int64_t other = random.UniformInt(kCapacity);
    if (model.contains(other) && i % 3 == 0) {
      Update(other, 2.5, selector.get());
      model[other].priority = 2.5;
    } else if (model.contains(other) && other != slot && i % 3 == 1) {
      selector->Remove(other);
      model.erase(other);
    }
    const auto weight = [&](const Held& held) {
      return std::pow(held.priority, 0.6) *
             std::max(std::pow(kFade.base, i - held.order), kFade.floor);
    };
    double total = 0.0;
    for (const auto& [held_slot, held] : model) total += weight(held);
    ASSERT_NEAR(selector->mass(), total, 1e-5 * total);
    Draw draws[5];
    selector->Select(random, draws);
    for (const Draw& draw : draws) {
      ASSERT_TRUE(model.contains(draw.slot));
      ASSERT_NEAR(draw.probability, weight(model.at(draw.slot)) / total, 1e-5);
      ASSERT_GT(draw.probability, 0.0);
    }
  }
}

// The frequencies follow the definition, not only the stated probabilities.
// Half of the slots lie at the floor.
TEST(SelectorTest, FadingPrioritiesAreDrawnInProportion) {
  for (const bool is_by_age_alone : {false, true}) {
    const PriorityFade fade = {.base = 0.95, .floor = 0.2};
    const auto selector = MakeSelector(SelectorKind::kPrioritized, 64,
                                       is_by_age_alone ? 0.0 : 1.0, fade);
    std::vector<double> probabilities;
    double total = 0.0;
    for (int64_t slot = 0; slot < 64; ++slot) {
      const auto priority = static_cast<double>(slot % 5);
      selector->Insert(slot, priority);
      probabilities.push_back(
          (is_by_age_alone ? 1.0 : priority) *
          std::max(std::pow(fade.base, static_cast<double>(63 - slot)),
                   fade.floor));
      total += probabilities.back();
    }
    for (double& probability : probabilities) probability /= total;
    EXPECT_NEAR(selector->mass(), total, 1e-4);
    ExpectFrequencies(*selector, probabilities);
  }
}

// The sum of the weights is 2^68 units, so that a draw takes wide numbers.
TEST(SelectorTest, FadingPrioritiesOfAnySizeAreDrawnInProportion) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 3, 1.0,
                                     {.base = 0.5, .floor = 0.25});
  for (int64_t slot = 0; slot < 3; ++slot) selector->Insert(slot, 1.5e5);
  EXPECT_NEAR(selector->mass(), 1.75 * 1.5e5, 1.0);
  constexpr int kDraws = 20'000;
  RandomStream random(9, "wide");
  int counts[3] = {};
  for (int i = 0; i < kDraws; ++i) {
    Draw draw;
    selector->Select(random, {&draw, 1});
    ++counts[draw.slot];
  }
  // five standard deviations
  for (int slot = 0; slot < 3; ++slot) {
    const double p = (1 << slot) / 7.0;
    EXPECT_NEAR(counts[slot], kDraws * p, 5.0 * std::sqrt(kDraws * p * (1 - p)))
        << "slot " << slot;
  }
}

TEST(SelectorTest, FadingPrioritiesThatAreAllZeroDrawUniformly) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 4, 0.6,
                                     {.base = 0.5, .floor = 0.1});
  for (int64_t slot = 0; slot < 4; ++slot) selector->Insert(slot, 0.0);
  EXPECT_EQ(selector->mass(), 0.0);
  ExpectFrequencies(*selector, {0.25, 0.25, 0.25, 0.25});
  // the first priority above zero takes all draws again, old as it is
  Update(0, 1e-9, selector.get());
  RandomStream random(1, "one");
  Draw draws[8];
  selector->Select(random, draws);
  for (const Draw& draw : draws) EXPECT_EQ(draw, (Draw{0, 1.0}));
}

// Each draw of a call removes its slot, as in a table with max_times_sampled.
TEST(SelectorTest, PrioritiesThatAreAllZeroGiveEverySlotOnce) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 130);
  std::vector<bool> is_drawn(130, false);
  for (int64_t slot = 0; slot < 130; ++slot) selector->Insert(slot, 0.0);
  RandomStream random(2, "all");
  for (int left = 130; left > 0; --left) {
    Draw draw;
    selector->Select(random, {&draw, 1});
    EXPECT_DOUBLE_EQ(draw.probability, 1.0 / left);
    ASSERT_FALSE(is_drawn[static_cast<size_t>(draw.slot)]);
    is_drawn[static_cast<size_t>(draw.slot)] = true;
    selector->Remove(draw.slot);
  }
  EXPECT_FALSE(selector->CanSelect());
}

TEST(SelectorTest, UniformDrawsAllAlike) {
  const auto selector = MakeSelector(SelectorKind::kUniform, 8);
  for (const int64_t slot : {6, 0, 3, 5}) selector->Insert(slot, 1.0);
  selector->Remove(0);
  ExpectFrequencies(*selector, {0, 0, 0, 1.0 / 3, 0, 1.0 / 3, 1.0 / 3, 0});
}

// One draw from each quarter: with four equal slots, every slot exactly once.
TEST(SelectorTest, DrawsOfOneCallAreStratified) {
  for (const SelectorKind kind :
       {SelectorKind::kPrioritized, SelectorKind::kUniform}) {
    const auto selector = MakeSelector(kind, 4);
    for (int64_t slot = 0; slot < 4; ++slot) selector->Insert(slot, 3.0);
    RandomStream random(1, "strata");
    for (int i = 0; i < 100; ++i) {
      Draw draws[4];
      selector->Select(random, draws);
      for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(draws[j].slot, j);
    }
  }
}

TEST(SelectorTest, PrioritizedHoldsTinyAndHugePrioritiesAtItsLimits) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 2);
  selector->Insert(0, 1e-300);
  EXPECT_EQ(selector->mass(), 0x1p-20);
  Update(0, 1e300, selector.get());
  EXPECT_NEAR(selector->mass(), 0x1p18, 1.0);
}

TEST(SelectorTest, MoreDrawsThanUnitsOfWeightStillFindTheSlot) {
  const auto selector = MakeSelector(SelectorKind::kPrioritized, 2);
  selector->Insert(1, 1e-9);
  RandomStream random(1, "units");
  std::vector<Draw> draws(1000);
  selector->Select(random, draws);
  for (const Draw& draw : draws) EXPECT_EQ(draw, (Draw{1, 1.0}));
}

TEST(SelectorTest, RefusesBadSettings) {
  EXPECT_EQ(
      MessageOf<InvalidArgument>([] { MakeSelector(SelectorKind::kFifo, 0); }),
      "MakeSelector: capacity 0 is outside [1, 16777216]");
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [] { MakeSelector(SelectorKind::kPrioritized, 1, 1.5); }),
            "MakeSelector: priority_exponent 1.5 is outside [0, 1]");
  const auto refusal = [](PriorityFade fade, SelectorKind kind) {
    return MessageOf<InvalidArgument>(
        [&] { MakeSelector(kind, 1, 1.0, fade); });
  };
  EXPECT_EQ(refusal({.base = 0.0}, SelectorKind::kPrioritized),
            "MakeSelector: priority_fade: base 0 is outside (0, 1]");
  EXPECT_EQ(refusal({.base = 0.9, .floor = 0.0}, SelectorKind::kPrioritized),
            "MakeSelector: priority_fade: floor 0 is outside [1e-06, 1]");
  EXPECT_EQ(refusal({.base = 0.9}, SelectorKind::kUniform),
            "MakeSelector: priority_fade: base 0.9 fades priorities, which "
            "sampler uniform does not use; allowed: base 1, or sampler "
            "prioritized");
  EXPECT_EQ(
      refusal({.base = 1.0 - 1e-8, .floor = 0.5}, SelectorKind::kPrioritized),
      "MakeSelector: priority_fade: base 0.99999999 reaches floor 0.5 after "
      "69314718 items; allowed: at most 16777216");
}

TEST(SelectorDeathTest, SelectFromNothingAborts) {
  const auto selector = MakeSelector(SelectorKind::kUniform, 4);
  RandomStream random(1, "death");
  Draw draw;
  EXPECT_DEATH(selector->Select(random, {&draw, 1}),
               "no slot that can be drawn");
}

}  // namespace
}  // namespace replicant::replay
