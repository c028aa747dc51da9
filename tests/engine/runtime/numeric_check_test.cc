#include "engine/runtime/numeric_check.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/message_of.h"
#include "tests/support/tensor_values.h"

namespace replicant::runtime {
namespace {

using testing::MessageOf;
using testing::Values;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NumericCheckTest, FindsTheFirstElementThatIsNotFinite) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    const auto find = [dtype](std::vector<double> values) {
      return FindNotFinite(Values(dtype, Shape({4}), values).view());
    };
    EXPECT_EQ(find({0, -1, 1e30, -0.0}), std::nullopt);
    EXPECT_EQ(find({0, kNan, kInfinity, 1}), 1);
    EXPECT_EQ(find({0, 1, 2, -kInfinity}), 3);
  }
  EXPECT_EQ(FindNotFinite(Values(DType::kI32, Shape({1}), {7}).view()),
            std::nullopt);
  EXPECT_EQ(FindNotFinite(Values(DType::kF32, Shape({0}), {}).view()),
            std::nullopt);
}

TEST(NumericCheckTest, NamesBatchInputAndRow) {
  const auto message = [](const HostTensor& tensor, int64_t num_classes = 0) {
    return MessageOf<NumericError>(
        [&] { CheckBatchTensor(12, "x", tensor.view(), num_classes); });
  };
  EXPECT_EQ(message(Values(DType::kF32, Shape({2, 2}), {1, 2, 3, kNan})),
            "batch 12: input 'x': row 1, element 1, is nan; want finite "
            "numbers");
  EXPECT_EQ(message(Values(DType::kF64, Shape({2}), {-kInfinity, 0})),
            "batch 12: input 'x': row 0 is -inf; want finite numbers");
  EXPECT_EQ(message(Values(DType::kI32, Shape({3}), {0, 9, 10}), 10),
            "batch 12: input 'x': row 2 is 10; want 0 to 9");
  EXPECT_EQ(message(Values(DType::kI64, Shape({1}), {-1}), 10),
            "batch 12: input 'x': row 0 is -1; want 0 to 9");
  EXPECT_EQ(message(Values(DType::kI64, Shape({1}), {-1})), "no exception");
}

}  // namespace
}  // namespace replicant::runtime
