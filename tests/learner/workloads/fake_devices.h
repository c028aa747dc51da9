#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "replicator/replicator.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_nccl.h"

namespace replicant::learner {

// Four CUDA devices without a GPU, which a test must leave clean.
class FakeDevicesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_THAT(driver_->problems(), ::testing::IsEmpty());
    EXPECT_THAT(driver_->live(), ::testing::IsEmpty());
  }

  // `devices` as in the configuration: empty for replica i on device i.
  static replicator::ReplicationConfig On(int replicas,
                                          std::vector<int> devices) {
    using replicator::Strategy;
    return {.strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
            .replicas = replicas,
            .backend = "cuda",
            .devices = std::move(devices)};
  }
  kernels::BackendFactory MakeBackends() const {
    return [this](std::string_view /*name*/,
                  const kernels::BackendOptions& options) {
      return testing::MakeFakeCudaBackend(
          driver_, testing::MakeHostNccl(world_), options.device_index);
    };
  }

  const std::shared_ptr<testing::FakeDriver> driver_ =
      std::make_shared<testing::FakeDriver>(testing::FakeDriverOptions{
          .num_devices = 4, .host_threads_are_ordered = true});
  const std::shared_ptr<testing::NcclWorld> world_ =
      std::make_shared<testing::NcclWorld>(driver_);
};

}  // namespace replicant::learner
