#include "learner/workloads/first_batch.h"

#include <gtest/gtest.h>

#include "base/tensor/host_tensor.h"
#include "learner/workloads/synthetic_images.h"

namespace replicant::learner {
namespace {

using replicator::NextResult;

class FirstBatchTest : public ::testing::Test {
 protected:
  FirstBatchTest() {
    for (const auto& spec : batches_.specs()) {
      tensors_.emplace_back(spec.dtype, spec.shape);
    }
    for (HostTensor& tensor : tensors_) {
      views_.push_back(tensor.mutable_view());
    }
  }

  FirstBatch Make() {
    return {std::make_unique<SyntheticImages>(
                SyntheticImagesOptions{.batch_size = 2, .side = 4},
                replicator::InputContext{}),
            &num_left_};
  }

  int64_t num_left_ = 100;
  FirstBatch batches_ = Make();
  std::vector<HostTensor> tensors_;
  std::vector<MutableTensorView> views_;
};

// catches a checkpoint that skips the batch that was read ahead
TEST_F(FirstBatchTest, ABatchThatIsReadAheadIsNotTaken) {
  ASSERT_EQ(batches_.Next({}, views_), NextResult::kOk);
  ASSERT_EQ(batches_.NextAhead({}, views_), NextResult::kOk);
  EXPECT_EQ(batches_.position(), 1);
  batches_.UseAhead();
  EXPECT_EQ(batches_.position(), 2);
}

// catches a run that makes one step more than it was asked for
TEST_F(FirstBatchTest, NoBatchIsReadAheadBeyondTheLimit) {
  num_left_ = 2;
  ASSERT_EQ(batches_.Next({}, views_), NextResult::kOk);
  ASSERT_EQ(batches_.NextAhead({}, views_), NextResult::kOk);
  batches_.UseAhead();
  EXPECT_EQ(batches_.NextAhead({}, views_), NextResult::kTimeout);
  EXPECT_EQ(batches_.position(), 2);
}

TEST_F(FirstBatchTest, PipelinesShareALimit) {
  FirstBatch others = Make();
  num_left_ = 3;
  ASSERT_EQ(batches_.Next({}, views_), NextResult::kOk);
  ASSERT_EQ(others.Next({}, views_), NextResult::kOk);
  ASSERT_EQ(batches_.Next({}, views_), NextResult::kOk);
  EXPECT_EQ(others.Next({}, views_), NextResult::kTimeout);
  EXPECT_EQ(batches_.Next({}, views_), NextResult::kTimeout);
  EXPECT_EQ(batches_.position() + others.position(), 3);
}

TEST_F(FirstBatchTest, APausedInputIsDrainedByReadingAhead) {
  ASSERT_EQ(batches_.Next({}, views_), NextResult::kOk);
  batches_.SetPaused(true);
  EXPECT_FALSE(batches_.is_drained());
  EXPECT_EQ(batches_.NextAhead({}, views_), NextResult::kTimeout);
  EXPECT_TRUE(batches_.is_drained());
}

}  // namespace
}  // namespace replicant::learner
