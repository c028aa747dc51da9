#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>

#include "engine/pjrt/plugin.h"
#include "tests/support/fake_pjrt/fake_pjrt.h"
#include "tests/support/message_of.h"

namespace replicant::pjrt {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::FakePlugin;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MessageOf;
using ::testing::Pair;

std::string MessageOfLoad(const std::filesystem::path& file) {
  return MessageOf<DeviceError>([&] { Plugin::Load(file); });
}

TEST(PjrtPluginTest, ReadsVersionAndAttributes) {
  const FakePlugin fake;
  fake->api.pjrt_api_version.minor_version = 1234;
  const Plugin& plugin = Plugin::Load(fake.file());
  EXPECT_EQ(plugin.file(), fake.file());
  EXPECT_EQ(plugin.version(), "0.1234");
  EXPECT_THAT(plugin.attributes(),
              ElementsAre(Pair("compiler", "fake"), Pair("xla_version", "2"),
                          Pair("stablehlo_current_version", "1.13.3"),
                          Pair("is_fake", "true"), Pair("speed", "0.5")));
}

// "One-time plugin setup": a second initialization is forbidden.
TEST(PjrtPluginTest, InitializesAPluginOnce) {
  const FakePlugin fake;
  const Plugin& plugin = Plugin::Load(fake.file());
  EXPECT_EQ(
      &Plugin::Load(fake.file().parent_path() / "." / fake.file().filename()),
      &plugin);
  EXPECT_THAT(fake->calls,
              ElementsAre("PJRT_Plugin_Initialize", "PJRT_Plugin_Attributes"));
}

TEST(PjrtPluginTest, TriesAgainAfterAFailure) {
  const FakePlugin fake;
  fake->failing_call = 0;
  EXPECT_THAT(MessageOfLoad(fake.file()),
              EndsWith(": PJRT_Plugin_Initialize: INTERNAL: the call was told "
                       "to fail"));
  EXPECT_THAT(fake->live, IsEmpty());
  fake->failing_call.reset();
  EXPECT_EQ(MessageOfLoad(fake.file()), "no exception");
}

TEST(PjrtPluginTest, NamesAMissingFile) {
  EXPECT_EQ(MessageOfLoad("/no/such/plugin.so"),
            "cannot load /no/such/plugin.so: cannot open shared object file: "
            "No such file or directory; hint: give the file of a PJRT plugin");
}

TEST(PjrtPluginTest, NamesALibraryThatIsNoPlugin) {
  EXPECT_EQ(
      MessageOfLoad("libm.so.6"),
      "libm.so.6 has no GetPjrtApi; hint: give the file of a PJRT plugin");
}

TEST(PjrtPluginTest, RefusesAnotherMajorVersion) {
  const FakePlugin fake;
  fake->api.pjrt_api_version.major_version = 1;
  fake->api.pjrt_api_version.minor_version = 3;
  EXPECT_EQ(MessageOfLoad(fake.file()),
            fake.file().string() +
                ": the plugin has version 1.3 of the PJRT interface; allowed: "
                "0.57 and newer, of the same major version; hint: install an "
                "older plugin");
  EXPECT_THAT(fake->calls, IsEmpty());
}

TEST(PjrtPluginTest, RefusesAnOlderMinorVersion) {
  const FakePlugin fake;
  fake->api.pjrt_api_version.minor_version = 56;
  EXPECT_THAT(MessageOfLoad(fake.file()),
              HasSubstr("version 0.56 of the PJRT interface; allowed: 0.57 and "
                        "newer, of the same major version; hint: install a "
                        "newer plugin"));
}

TEST(PjrtPluginTest, RefusesATableThatHoldsNoVersion) {
  const FakePlugin fake;
  fake->api.struct_size = offsetof(PJRT_Api, pjrt_api_version);
  EXPECT_THAT(MessageOfLoad(fake.file()),
              EndsWith(": GetPjrtApi() returned a table of 16 bytes, too short "
                       "to hold a version"));
}

// Fields after the end of an older plugin's table are not its own.
TEST(PjrtPluginTest, NamesFunctionsBeyondTheEndOfATable) {
  const FakePlugin fake;
  fake->api.struct_size = offsetof(PJRT_Api, PJRT_Buffer_ToHostBuffer);
  EXPECT_EQ(MessageOfLoad(fake.file()),
            fake.file().string() + ": the plugin, of version " +
                Plugin::Load(FakePlugin().file()).version() +
                " of the PJRT interface, has no "
                "PJRT_Executable_OutputElementTypes, "
                "PJRT_Executable_OutputDimensions, PJRT_Buffer_ToHostBuffer");
}

TEST(PjrtPluginTest, NamesAFunctionThatIsNull) {
  const FakePlugin fake;
  fake->api.PJRT_Client_Compile = nullptr;
  EXPECT_THAT(MessageOfLoad(fake.file()),
              EndsWith("has no PJRT_Client_Compile"));
}

// The memory of a module is for a log: a plugin need not have the function.
TEST(PjrtPluginTest, TakesAPluginWithoutWhatIsOptional) {
  const FakePlugin fake;
  fake->api.PJRT_Executable_GetCompiledMemoryStats = nullptr;
  EXPECT_EQ(MessageOfLoad(fake.file()), "no exception");
}

}  // namespace
}  // namespace replicant::pjrt
