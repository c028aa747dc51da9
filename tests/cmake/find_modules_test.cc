// What FindMuJoCo and FindOneDNN found can be linked and loaded, and header and
// library have the same version: would catch a second copy that shadows ours.
#include <gtest/gtest.h>
#include <mujoco/mujoco.h>

#include <oneapi/dnnl/dnnl.hpp>

namespace {

TEST(FindModulesTest, MuJoCoHeaderAndLibraryAreOfTheVersionFound) {
  EXPECT_EQ(mj_version(), mjVERSION_HEADER);
  EXPECT_STREQ(mj_versionString(), REPLICANT_MUJOCO_VERSION);
}

TEST(FindModulesTest, OneDnnHeaderAndLibraryAreOfThePinnedVersion) {
  const dnnl_version_t* version = dnnl_version();
  EXPECT_EQ(version->major, DNNL_VERSION_MAJOR);
  EXPECT_EQ(version->minor, DNNL_VERSION_MINOR);
  EXPECT_EQ(version->major, 3);
  EXPECT_EQ(version->minor, 2);
  EXPECT_EQ(version->cpu_runtime, unsigned{DNNL_RUNTIME_OMP});
}

}  // namespace
