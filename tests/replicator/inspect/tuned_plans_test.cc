// Who gets a cache of tuned plans from the configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/fs.h"
#include "engine/kernels/plan_cache.h"
#include "replicator/inspect/plan_replicator.h"
#include "replicator/make_replicator.h"
#include "replicator/replicator.h"

namespace replicant::replicator {
namespace {

using ::testing::Each;
using ::testing::IsNull;
using ::testing::NotNull;
using ::testing::SizeIs;

ReplicationConfig Load(const std::string& text) {
  return config::Load<ReplicationConfig>(
             config::Document::FromText("run.yaml", text))
      .config;
}

using Caches = std::vector<std::shared_ptr<kernels::PlanCache>>;

// Notes what the backends of a replicator are given; they compute on the host.
kernels::BackendFactory Noting(Caches* caches) {
  return [caches](std::string_view /*name*/,
                  const kernels::BackendOptions& options) {
    caches->push_back(options.tuned_plans);
    return kernels::MakeBackend("reference");
  };
}

class TunedPlansTest : public ::testing::Test {
 protected:
  // Replicas on the backend cuda, with additional `keys`.
  ReplicationConfig Config(const std::string& keys) const {
    return Load("{backend: cuda, collectives: host, " + keys + "}");
  }
  std::string Enabled() const {
    return "cuda_autotune: {enabled: true, cache: " + folder_.path().string() +
           "}";
  }

  const TemporaryFolder folder_;
};

TEST_F(TunedPlansTest, ARunDoesNotTuneUnlessItIsTold) {
  EXPECT_FALSE(ReplicationConfig().cuda_autotune.is_enabled);
  Caches caches;
  MakeReplicator(Config("threads: 1"), /*seed=*/1, /*rank=*/{},
                 Noting(&caches));
  EXPECT_THAT(caches, AllOf(SizeIs(1), Each(IsNull())));
}

TEST_F(TunedPlansTest, OtherBackendsHaveNoCache) {
  EXPECT_EQ(Load("{backend: cpu, " + Enabled() + "}").MakePlanCache(), nullptr);
}

TEST_F(TunedPlansTest, OneReplicaHasTheCacheOfTheFolder) {
  Caches caches;
  MakeReplicator(Config(Enabled()), /*seed=*/1, /*rank=*/{}, Noting(&caches));
  ASSERT_THAT(caches, AllOf(SizeIs(1), Each(NotNull())));
  EXPECT_EQ(caches[0]->file(), folder_.path() / "tuned_plans.txt");
}

// catches replicas that tune for themselves
TEST_F(TunedPlansTest, ReplicasOfAProcessShareACache) {
  Caches caches;
  MakeReplicator(Config("strategy: in_graph, replicas: 3, " + Enabled()),
                 /*seed=*/1, /*rank=*/{}, Noting(&caches));
  ASSERT_THAT(caches, AllOf(SizeIs(3), Each(NotNull())));
  EXPECT_THAT(caches, Each(caches[0]));
}

// The device that `plan` reads plans for is described and not there.
TEST_F(TunedPlansTest, PlansThatAreReadAreNotTuned) {
  Caches caches;
  MakePlanReplicator(Config(Enabled()), /*seed=*/1, Noting(&caches));
  EXPECT_THAT(caches, AllOf(SizeIs(1), Each(IsNull())));
}

}  // namespace
}  // namespace replicant::replicator
