// Whole updates of the image models on CUDA devices: on one as on the
// reference, on several replicas as on one. Without a GPU
// (tests/support/fake_cuda).
#include <gtest/gtest.h>

#include <functional>

#include "tests/learner/workloads/fake_devices.h"
#include "tests/learner/workloads/image_replicas.h"

namespace replicant::learner {
namespace {

using replicator::ReplicationConfig;

constexpr DType kType = DType::kF32;

class ImageDevicesTest : public FakeDevicesTest {
 protected:
  using Train = std::function<ImageRun(const ReplicationConfig&,
                                       const kernels::BackendFactory&)>;

  void CheckAllLayouts(const Train& train) {
    const ImageRun one = train(On(1, {}), MakeBackends());
    CheckSameRun(train({.backend = "reference"}, kernels::MakeBackend), one,
                 kType);
    for (const int replicas : {2, 4}) {
      SCOPED_TRACE(replicas);
      const ImageRun shared = train(On(replicas, {0}), MakeBackends());
      CheckSameRun(one, shared, kType);
      // replicas on separate devices also sum in the order of ranks here
      const ImageRun apart = train(On(replicas, {}), MakeBackends());
      EXPECT_EQ(apart.last, shared.last);
      EXPECT_EQ(apart.losses, shared.losses);
    }
  }
};

TEST_F(ImageDevicesTest, ResNetLearnsAsTheReference) {
  const Training training =
      ResNetTraining(kType, models::NormStatistics::kSync, /*num_steps=*/4);
  CheckAllLayouts([&](const ReplicationConfig& config,
                      const kernels::BackendFactory& make_backend) {
    return TrainImages(training, config, make_backend);
  });
}

TEST_F(ImageDevicesTest, SnganLearnsAsTheReference) {
  const Training training = SnganTraining(kType);
  CheckAllLayouts([&](const ReplicationConfig& config,
                      const kernels::BackendFactory& make_backend) {
    return TrainImages(training, config, make_backend);
  });
}

TEST_F(ImageDevicesTest, JointSnganLearnsAsTheReference) {
  CheckAllLayouts([&](const ReplicationConfig& config,
                      const kernels::BackendFactory& make_backend) {
    return TrainJointSngan(config, kType, make_backend);
  });
}

}  // namespace
}  // namespace replicant::learner
