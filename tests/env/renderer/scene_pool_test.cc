#include "env/renderer/scene_pool.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <memory>
#include <utility>
#include <vector>

#include "env/renderer/raycast/raycast_renderer.h"
#include "tests/env/renderer/suite_model.h"

namespace replicant::env {
namespace {

constexpr const char* kBall =
    "<mujoco><worldbody><geom size='.5'/></worldbody></mujoco>";

TEST(ScenePoolTest, AReturnedSceneIsTakenAgain) {
  const SuiteModel model = ModelOf(kBall);
  ScenePool pool;
  std::unique_ptr<Scene> first = pool.Take(*model.model);
  std::unique_ptr<Scene> second = pool.Take(*model.model);
  EXPECT_NE(first, second);
  const Scene* returned = first.get();
  pool.Return(std::move(first));
  EXPECT_EQ(pool.Take(*model.model).get(), returned);
}

size_t AllocatedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Would catch: a scene, or its list of geoms, for each renderer.
TEST(ScenePoolTest, SiblingsThatDrawInTurnsTakeLittleMemory) {
  SuiteModel model = ModelOf(kBall);
  const RaycastRenderer first(*model.model);
  constexpr size_t kCount = 100;
  std::vector<std::unique_ptr<Renderer>> siblings;
  const size_t before = AllocatedBytes();
  for (size_t i = 0; i < kCount; ++i) {
    siblings.push_back(first.MakeSibling(*model.model));
    std::vector<uint8_t> rgb(3 * 16 * 16);
    siblings.back()->Render(*model.model, *model.data, -1, 16, 16, rgb);
  }
  // a scene of 1,000 geoms takes 250 kB
  EXPECT_LT(AllocatedBytes() - before, kCount * 50'000);
}

}  // namespace
}  // namespace replicant::env
