#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/tensor/bfloat16.h"
#include "replicator/comm/collective_queue.h"
#include "replicator/comm/communicator.h"
#include "tests/support/message_of.h"

// Rules for every communicator: one suite, run over each transport.
//
// A transport has
//   static void RunOn(int size, const std::function<void(Communicator&)>&
//   body);
// which runs `body` on every rank of a group of `size` and returns when all are
// done.
namespace replicant::comm {

inline constexpr int kMaxRanks = 8;
// around vectors, cache lines and parts; the last is cut into pieces nowhere
// evenly
inline constexpr int64_t kCounts[] = {0, 1, 3, 7, 16, 17, 63, 1000, 4'099};
// enough for each of the other types
inline constexpr int64_t kFewCounts[] = {1, 17, 301};

// Element i of rank r. Whole and small, so that reductions are exact in every
// type: a sum over 8 ranks is at most 48, a product at most 2^8 (and wraps to 0
// in u8, as it should).
inline int64_t ValueOf(ReduceOp op, int64_t i, int r) {
  return op == ReduceOp::kProd ? (i + r) % 2 + 1 : (i + r) % 7;
}

inline int64_t ReducedValue(ReduceOp op, int64_t i, int size) {
  int64_t result = ValueOf(op, i, 0);
  for (int r = 1; r < size; ++r) {
    const int64_t x = ValueOf(op, i, r);
    if (op == ReduceOp::kSum) result += x;
    if (op == ReduceOp::kMin) result = std::min(result, x);
    if (op == ReduceOp::kMax) result = std::max(result, x);
    if (op == ReduceOp::kProd) result *= x;
  }
  return result;
}

// A value as an element of T, and back.
template <typename T>
T To(int64_t value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}
template <typename T>
double From(T value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
std::vector<T> Filled(int64_t count, const std::function<int64_t(int64_t)>& f) {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values.push_back(To<T>(f(i)));
  return values;
}
template <typename T>
TensorView View(const std::vector<T>& values, size_t begin, int64_t count) {
  return {kDTypeOf<T>, Shape({count}), values.data() + begin};
}
template <typename T>
MutableTensorView Mutable(std::vector<T>& values, size_t begin, int64_t count) {
  return {kDTypeOf<T>, Shape({count}), values.data() + begin};
}

template <typename T>
void ExpectEqual(const std::vector<T>& actual, const std::vector<T>& expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(From(actual[i]), From(expected[i])) << what << ", element " << i;
  }
}

template <typename T>
void CheckReductions(Communicator& comm, int64_t n) {
  const int rank = comm.rank();
  const int size = comm.size();
  const auto rows = static_cast<int64_t>(size);
  for (const ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    const std::string what = std::string(ToString(op)) + " of " +
                             std::string(DTypeName(kDTypeOf<T>));
    const auto own = [&](int64_t i) { return ValueOf(op, i, rank); };
    const auto reduced = [&](int64_t i) { return ReducedValue(op, i, size); };

    std::vector<T> in = Filled<T>(n, own);
    std::vector<T> out = Filled<T>(n, [](int64_t) { return 99; });
    comm.AllReduce(View(in, 0, n), Mutable(out, 0, n), op);
    ExpectEqual(out, Filled<T>(n, reduced), "all_reduce " + what);
    ExpectEqual(in, Filled<T>(n, own), "input of all_reduce " + what);
    comm.AllReduce(View(in, 0, n), Mutable(in, 0, n), op);
    ExpectEqual(in, out, "all_reduce in place " + what);
    const std::vector<T> out_of_all = out;
    if constexpr (std::is_floating_point_v<T>) {
      if (op == ReduceOp::kSum) {
        std::vector<T> mean = Filled<T>(n, own);
        comm.AllReduce(View(mean, 0, n), Mutable(mean, 0, n), ReduceOp::kMean);
        for (T& value : in) value *= static_cast<T>(1.0 / size);
        ExpectEqual(mean, in, "all_reduce mean");
      }
    }

    std::vector<T> all = Filled<T>(rows * n, own);
    const std::vector<T> row =
        Filled<T>(n, [&](int64_t i) { return reduced(rank * n + i); });
    comm.ReduceScatter(View(all, 0, rows * n), Mutable(out, 0, n), op);
    ExpectEqual(out, row, "reduce_scatter " + what);
    const auto begin = static_cast<size_t>(rank * n);
    comm.ReduceScatter(View(all, 0, rows * n), Mutable(all, begin, n), op);
    ExpectEqual(
        std::vector<T>(all.begin() + rank * n, all.begin() + (rank + 1) * n),
        row, "reduce_scatter in place " + what);

    if constexpr (!std::is_integral_v<T>) {
      // halves are exact, too
      std::vector<T> halves = Filled<T>(n, own);
      comm.Run({.kind = Collective::Kind::kAllReduce,
                .op = op,
                .in = View(halves, 0, n),
                .out = Mutable(halves, 0, n),
                .factor = 0.5});
      for (size_t i = 0; i < halves.size(); ++i) {
        ASSERT_EQ(From(halves[i]), 0.5 * From(out_of_all[i])) << what;
      }
    }
  }
}

template <typename T>
void CheckCopies(Communicator& comm, int64_t n) {
  const int rank = comm.rank();
  const auto rows = static_cast<int64_t>(comm.size());
  const auto value = [](int64_t i, int64_t r) { return (3 * i + r) % 200; };
  const std::vector<T> in =
      Filled<T>(n, [&](int64_t i) { return value(i, rank); });
  std::vector<T> all(static_cast<size_t>(rows * n));
  comm.AllGather(View(in, 0, n), Mutable(all, 0, rows * n));
  const std::vector<T> expected = Filled<T>(rows * n, [&](int64_t i) {
    return value(i % std::max<int64_t>(n, 1), i / std::max<int64_t>(n, 1));
  });
  ExpectEqual(all, expected, "all_gather");
  std::vector<T> in_place(static_cast<size_t>(rows * n));
  const auto begin = static_cast<size_t>(rank * n);
  std::copy(in.begin(), in.end(), in_place.begin() + rank * n);
  comm.AllGather(View(in_place, begin, n), Mutable(in_place, 0, rows * n));
  ExpectEqual(in_place, expected, "all_gather in place");

  for (int source = 0; source < comm.size(); ++source) {
    std::vector<T> tensor = in;
    comm.Broadcast(Mutable(tensor, 0, n), source);
    ExpectEqual(tensor,
                Filled<T>(n, [&](int64_t i) { return value(i, source); }),
                "broadcast");
  }
}

template <typename Transport>
class CommunicatorTest : public ::testing::Test {};
TYPED_TEST_SUITE_P(CommunicatorTest);

TYPED_TEST_P(CommunicatorTest, ReducesExactly) {
  for (int size = 1; size <= kMaxRanks; ++size) {
    TypeParam::RunOn(size, [&](Communicator& comm) {
      ASSERT_EQ(comm.size(), size);
      for (const int64_t n : kCounts) CheckReductions<float>(comm, n);
      for (const int64_t n : kFewCounts) {
        CheckReductions<double>(comm, n);
        CheckReductions<BFloat16>(comm, n);
        CheckReductions<int32_t>(comm, n);
        CheckReductions<int64_t>(comm, n);
        CheckReductions<uint8_t>(comm, n);
      }
    });
  }
}

TYPED_TEST_P(CommunicatorTest, GathersAndBroadcasts) {
  for (int size = 1; size <= kMaxRanks; ++size) {
    TypeParam::RunOn(size, [&](Communicator& comm) {
      for (const int64_t n : kCounts) CheckCopies<float>(comm, n);
      for (const int64_t n : kFewCounts) {
        CheckCopies<uint8_t>(comm, n);
        CheckCopies<int64_t>(comm, n);
        comm.Barrier();
      }
    });
  }
}

// Transports that added in any other order would differ in the last bits.
TYPED_TEST_P(CommunicatorTest, AddsInRankOrder) {
  constexpr int64_t kCount = 10'007;
  const auto value = [](int64_t i, int r) {
    // of very different size and of both signs; the product is exact, so that
    // a compiler may fuse it with a sum
    const auto mantissa = static_cast<float>((i * 7919 + r * 104'729) % 1013);
    return (mantissa - 500.0F) * (r % 3 == 0 ? 8192.0F : 0x1p-10F);
  };
  for (const int size : {2, 3, 5, 8}) {
    TypeParam::RunOn(size, [&](Communicator& comm) {
      std::vector<float> x;
      x.reserve(kCount);
      for (int64_t i = 0; i < kCount; ++i) x.push_back(value(i, comm.rank()));
      comm.AllReduce(View(x, 0, kCount), Mutable(x, 0, kCount), ReduceOp::kSum);
      for (int64_t i = 0; i < kCount; ++i) {
        float sum = value(i, 0);
        for (int r = 1; r < size; ++r) sum += value(i, r);
        ASSERT_EQ(x[static_cast<size_t>(i)], sum) << i;
      }
    });
  }
}

// Pieces have 512 KiB in a chain of processes and 4 MiB for each peer
// otherwise: these take several rounds, the last one short.
TYPED_TEST_P(CommunicatorTest, CutsLargeTensorsIntoPieces) {
  for (const auto& [num_ranks, count] :
       {std::pair(2, 2'500'003), std::pair(5, 300'007),
        std::pair(8, 150'001)}) {
    TypeParam::RunOn(num_ranks, [n = int64_t{count}](Communicator& comm) {
      const auto size = static_cast<int64_t>(comm.size());
      const auto value = [](int64_t i, int64_t r) {
        return static_cast<float>(i % 1000 + r);
      };
      std::vector<float> x(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        x[static_cast<size_t>(i)] = value(i, comm.rank());
      }
      std::vector<float> sum(static_cast<size_t>(n));
      comm.AllReduce(View(x, 0, n), Mutable(sum, 0, n), ReduceOp::kSum);
      const int64_t sum_of_ranks = size * (size - 1) / 2;
      int64_t num_wrong = 0;
      for (int64_t i = 0; i < n; ++i) {
        const auto expected = static_cast<float>(size) * value(i, 0) +
                              static_cast<float>(sum_of_ranks);
        if (sum[static_cast<size_t>(i)] != expected) ++num_wrong;
      }
      EXPECT_EQ(num_wrong, 0);
      std::vector<float> all(static_cast<size_t>(size * n));
      comm.AllGather(View(x, 0, n), Mutable(all, 0, size * n));
      comm.Broadcast(Mutable(all, 0, size * n), comm.size() - 1);
      for (int64_t i = 0; i < size * n; ++i) {
        if (all[static_cast<size_t>(i)] != value(i % n, i / n)) ++num_wrong;
      }
      EXPECT_EQ(num_wrong, 0);
      // equal on all ranks, so that a maximum changes nothing
      std::vector<float> row(static_cast<size_t>(n));
      comm.ReduceScatter(View(all, 0, size * n), Mutable(row, 0, n),
                         ReduceOp::kMax);
      EXPECT_EQ(row, x);
    });
  }
}

TYPED_TEST_P(CommunicatorTest, SplitsIntoGroups) {
  TypeParam::RunOn(5, [](Communicator& comm) {
    const int rank = comm.rank();
    // even ranks in reverse order, odd ones as they are; rank 4 stays out
    const int color = rank == 4 ? -1 : rank % 2;
    const auto group = comm.Split(color, rank % 2 == 0 ? -rank : rank);
    ASSERT_EQ(group == nullptr, rank == 4);
    if (group != nullptr) {
      EXPECT_EQ(group->size(), 2);
      EXPECT_EQ(group->rank(), rank % 2 == 0 ? 1 - rank / 2 : rank / 2);
      std::vector<int32_t> x = {rank};
      group->AllReduce(View(x, 0, 1), Mutable(x, 0, 1), ReduceOp::kSum);
      EXPECT_EQ(x[0], rank % 2 == 0 ? 2 : 4);
    }
    comm.Barrier();
  });
}

TYPED_TEST_P(CommunicatorTest, AQueueMakesCallsInOrderWhileItsOwnerGoesOn) {
  constexpr int kRounds = 50;
  constexpr int64_t kCount = 501;
  using Kind = Collective::Kind;
  TypeParam::RunOn(3, [&](Communicator& comm) {
    CollectiveQueue queue(&comm);
    std::vector<float> x(kCount, static_cast<float>(comm.rank() + 1));
    std::vector<float> y(kCount);
    std::vector<float> z(1, 0.5F);
    CollectiveQueue::Work sum({Kind::kAllReduce, ReduceOp::kSum, 0,
                               View(x, 0, kCount), Mutable(y, 0, kCount)});
    // reads what the first one writes
    CollectiveQueue::Work largest({Kind::kAllReduce, ReduceOp::kMax, 0,
                                   View(y, 0, kCount), Mutable(y, 0, kCount)});
    CollectiveQueue::Work small(
        {Kind::kAllReduce, ReduceOp::kSum, 0, View(z, 0, 1), Mutable(z, 0, 1)});
    for (int round = 0; round < kRounds; ++round) {
      z[0] = 0.5F;
      queue.Start(sum);
      queue.Start(largest);
      queue.Run(small);
      ASSERT_EQ(z[0], 1.5F);
      queue.Wait(sum);
      queue.Wait(largest);
      ASSERT_EQ(y.front(), 6.0F);
      ASSERT_EQ(y.back(), 6.0F);
    }
  });
}

TYPED_TEST_P(CommunicatorTest, RefusesArgumentsThatDoNotFit) {
  TypeParam::RunOn(2, [](Communicator& comm) {
    std::vector<float> x(8);
    std::vector<int32_t> other(8);
    const auto message = [&](const auto& call) {
      return testing::MessageOf<InvalidArgument>(call);
    };
    EXPECT_EQ(message([&] {
                comm.AllReduce(View(x, 0, 3), Mutable(x, 4, 4), ReduceOp::kSum);
              }),
              "all_reduce sum f32[3]: the result does not fit f32[4] on 2 "
              "ranks");
    EXPECT_EQ(
        message([&] { comm.AllGather(View(x, 0, 4), Mutable(other, 0, 8)); }),
        "all_gather f32[4]: the result does not fit i32[8] on 2 ranks");
    EXPECT_EQ(message([&] { comm.Broadcast(Mutable(x, 0, 4), 2); }),
              "broadcast from rank 2 f32[4]: there are 2 ranks");
    EXPECT_EQ(message([&] {
                comm.AllReduce(View(x, 0, 4), Mutable(x, 1, 4), ReduceOp::kMin);
              }),
              "all_reduce min f32[4]: input and result overlap, and are not in "
              "place");
    const bool is_true = true;
    bool result = false;
    EXPECT_EQ(message([&] {
                comm.AllReduce({DType::kBool, Shape({1}), &is_true},
                               {DType::kBool, Shape({1}), &result},
                               ReduceOp::kMax);
              }),
              "all_reduce max bool[1]: bool cannot be reduced");
    const int64_t whole = 1;
    int64_t mean = 0;
    EXPECT_EQ(message([&] {
                comm.AllReduce({DType::kI64, Shape({1}), &whole},
                               {DType::kI64, Shape({1}), &mean},
                               ReduceOp::kMean);
              }),
              "all_reduce mean i64[1]: a mean is for floating elements");
  });
}

REGISTER_TYPED_TEST_SUITE_P(CommunicatorTest, ReducesExactly,
                            GathersAndBroadcasts, AddsInRankOrder,
                            CutsLargeTensorsIntoPieces, SplitsIntoGroups,
                            AQueueMakesCallsInOrderWhileItsOwnerGoesOn,
                            RefusesArgumentsThatDoNotFit);

}  // namespace replicant::comm
