#include "replay/table/faded_sum_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/rng.h"

namespace replicant::replay {
namespace {

using Sum = FadedSumTree::Sum;
using Weight = FadedSumTree::Weight;

struct Held {
  uint64_t insertion;
  Weight weight;
};

// The tree's slots, kept the slow and obvious way.
struct Model {
  PriorityFade fade;
  uint64_t num_inserted = 0;
  std::map<int64_t, Held> held;

  uint64_t AgeOf(const Held& slot) const {
    return num_inserted - 1 - slot.insertion;
  }
  double Fade(const Held& slot) const {
    return std::max(std::pow(fade.base, static_cast<double>(AgeOf(slot))),
                    fade.floor);
  }
  // Old slots first, by number, then the others by age.
  std::vector<int64_t> InOrder() const {
    std::vector<std::pair<uint64_t, int64_t>> keys;
    for (const auto& [slot, what] : held) {
      const bool is_old = static_cast<double>(AgeOf(what)) >= fade.AgeAtFloor();
      keys.push_back({is_old ? 0 : 1 + what.insertion, slot});
    }
    std::sort(keys.begin(), keys.end());
    std::vector<int64_t> slots;
    slots.reserve(keys.size());
    for (const auto& [key, slot] : keys) slots.push_back(slot);
    return slots;
  }
};

// Weights match w fade(age) to the bound of the header, sums and draws match
// the weights exactly.
void ExpectAgreement(const FadedSumTree& tree, const Model& model,
                     RandomStream& random) {
  const double bound = std::pow(model.fade.floor, -1.0 / 8);
  Sum total = 0;
  std::vector<Sum> targets;
  std::vector<int64_t> expected;
  for (const int64_t slot : model.InOrder()) {
    const Held& held = model.held.at(slot);
    const Sum weight = tree.weight(slot);
    const auto w = static_cast<double>(held.weight);
    ASSERT_NEAR(static_cast<double>(weight) / FadedSumTree::kUnits,
                w * model.Fade(held),
                w == 0.0 ? 0.0 : bound + std::ldexp(w, -28))
        << "age " << model.AgeOf(held);
    ASSERT_EQ(weight == 0, held.weight == 0);
    if (weight == 0) continue;
    // the first and the last target of a slot, and one between
    for (const Sum target :
         {Sum{0}, weight - 1, weight * (random() >> 40) >> 24}) {
      targets.push_back(total + target);
      expected.push_back(slot);
    }
    total += weight;
  }
  ASSERT_TRUE(tree.total() == total);
  // now and then not in order
  if (!targets.empty() && random.UniformInt(2) == 0) {
    const auto middle = static_cast<std::ptrdiff_t>(targets.size() / 3);
    std::rotate(targets.begin(), targets.begin() + middle, targets.end());
    std::rotate(expected.begin(), expected.begin() + middle, expected.end());
  }
  std::vector<int64_t> found(targets.size());
  tree.Find(targets, found);
  ASSERT_EQ(found, expected);
}

// Mostly small numbers, some zero, some at the limits.
Weight DrawWeight(RandomStream& random) {
  switch (random.UniformInt(6)) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return SumTree::kMaxWeight;
    default:
      return static_cast<Weight>(random.UniformInt(1 << 21));
  }
}

// The held slot that a remover would take: the oldest, the newest or any.
int64_t Choose(const Model& model, int64_t what, RandomStream& random) {
  const auto older = [](const auto& a, const auto& b) {
    return a.second.insertion < b.second.insertion;
  };
  if (what == 0) {
    return std::min_element(model.held.begin(), model.held.end(), older)->first;
  }
  if (what == 1) {
    return std::max_element(model.held.begin(), model.held.end(), older)->first;
  }
  return std::next(model.held.begin(),
                   random.UniformInt(static_cast<int64_t>(model.held.size())))
      ->first;
}

struct Case {
  PriorityFade fade;
  int64_t capacity;
  int remover;  // as in Choose()
};

// Catches a wrong power, a slot that is lost or counted twice on its way from
// the young to the old, a tree of the ring that is not empty when it is used
// again, and an order of the trees that does not match the sums. The ring of
// insertions turns tens of times; capacities are below and above it.
TEST(FadedSumTreeTest, AgreesWithAnObviousModelOverRandomOperations) {
  const Case cases[] = {{{0.5, 0.1}, 5, 0},     {{0.9, 0.3}, 40, 0},
                        {{0.9, 0.3}, 7, 0},     {{0.9, 0.3}, 40, 1},
                        {{0.95, 0.01}, 60, 2},  {{0.95, 1e-6}, 300, 0},
                        {{0.99, 0.1}, 1000, 2}, {{1e-30, 0.5}, 4, 0},
                        {{0.9999, 1.0}, 20, 0}, {{0.97, 0.25}, 17, 2}};
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message()
                 << "base=" << c.fade.base << " floor=" << c.fade.floor
                 << " capacity=" << c.capacity << " remover=" << c.remover);
    RandomStream random(static_cast<uint64_t>(c.capacity), "operations");
    FadedSumTree tree(c.capacity, c.fade);
    Model model = {.fade = c.fade, .held = {}};
    const auto set = [&](int64_t slot, Weight weight) {
      tree.Set(slot, weight);
      model.held[slot].weight = weight;
    };
    for (int i = 0; i < 3000; ++i) {
      const int64_t what = random.UniformInt(20);
      const bool is_full =
          static_cast<int64_t>(model.held.size()) == c.capacity;
      if (is_full || (what == 0 && !model.held.empty())) {
        const int64_t slot = Choose(model, c.remover, random);
        set(slot, 0);
        model.held.erase(slot);
      }
      if (what < 14) {
        int64_t slot = random.UniformInt(c.capacity);
        while (model.held.contains(slot)) slot = (slot + 1) % c.capacity;
        const Weight weight = DrawWeight(random);
        tree.Insert(slot, weight);
        model.held[slot] = {model.num_inserted++, weight};
      } else if (!model.held.empty()) {
        set(Choose(model, 2, random), DrawWeight(random));
      }
      if (i % 500 == 499) {
        // a short and a long time without anything that stays
        const auto more = static_cast<uint64_t>(i % 1000 == 999 ? 3 : 400);
        model.num_inserted += more;
        tree.AgeTo(model.num_inserted);
        tree.AgeTo(model.num_inserted - 1);
      }
      if (c.capacity < 100 || i % 50 == 0) ExpectAgreement(tree, model, random);
      if (HasFatalFailure()) return;
    }
  }
}

// As a restored table does: the same slots and ages, and nothing of the past.
TEST(FadedSumTreeTest, TheLiveSlotsAloneGiveTheSameTree) {
  const PriorityFade fade = {0.98, 0.2};
  RandomStream random(3, "lives");
  FadedSumTree tree(50, fade);
  Model model = {.fade = fade, .held = {}};
  for (int i = 0; i < 700; ++i) {
    const int64_t slot = random.UniformInt(50);
    if (model.held.contains(slot)) tree.Set(slot, 0);
    const Weight weight = 1 + DrawWeight(random) / 2;
    tree.Insert(slot, weight);
    model.held[slot] = {model.num_inserted++, weight};
  }
  // the newest are removed
  for (int i = 0; i < 5; ++i) {
    const int64_t slot = Choose(model, 1, random);
    tree.Set(slot, 0);
    model.held.erase(slot);
  }
  FadedSumTree again(50, fade);
  Model rest = model;
  while (!rest.held.empty()) {
    const int64_t slot = Choose(rest, 0, random);
    const Held held = rest.held.at(slot);
    again.AgeTo(held.insertion);
    again.Insert(slot, held.weight);
    rest.held.erase(slot);
  }
  again.AgeTo(model.num_inserted);
  ASSERT_TRUE(again.total() == tree.total());
  for (const auto& [slot, held] : model.held) {
    ASSERT_TRUE(again.weight(slot) == tree.weight(slot)) << slot;
  }
  ExpectAgreement(again, model, random);
}

// Several updates at once, old and young slots among them, with one repeated.
TEST(FadedSumTreeTest, ManyWeightsAtOnceEqualThoseOneByOne) {
  const PriorityFade fade = {0.99, 0.5};
  FadedSumTree at_once(400, fade);
  FadedSumTree one_by_one(400, fade);
  for (int64_t slot = 0; slot < 400; ++slot) {
    at_once.Insert(slot, 10);
    one_by_one.Insert(slot, 10);
  }
  RandomStream random(4, "updates");
  std::vector<int64_t> slots;
  std::vector<Weight> weights;
  for (int i = 0; i < 700; ++i) {
    slots.push_back(random.UniformInt(400));
    weights.push_back(DrawWeight(random));
    one_by_one.Set(slots.back(), weights.back());
  }
  at_once.Set(slots, weights);
  EXPECT_TRUE(at_once.total() == one_by_one.total());
  for (int64_t slot = 0; slot < 400; ++slot) {
    EXPECT_TRUE(at_once.weight(slot) == one_by_one.weight(slot)) << slot;
  }
}

TEST(PriorityFadeTest, ThePapersReachesItsFloorAfter23025Items) {
  const PriorityFade fade = {.base = 0.9999, .floor = 0.1};
  EXPECT_EQ(fade.AgeAtFloor(), 23025.0);
  EXPECT_GT(std::pow(0.9999, 23024), 0.1);
  EXPECT_LT(std::pow(0.9999, 23025), 0.1);
}

TEST(FadedSumTreeDeathTest, RefusesWhatWouldBreakIt) {
  FadedSumTree tree(4, {0.9, 0.1});
  tree.Insert(1, 5);
  EXPECT_DEATH(tree.Insert(1, 5), "");
  EXPECT_DEATH(tree.Insert(4, 5), "slot 4 of 4");
  EXPECT_DEATH(FadedSumTree(4, {.base = 1.0}), "base 1");
}

}  // namespace
}  // namespace replicant::replay
