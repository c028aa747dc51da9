#include "fleet/host_launcher.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/fs.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;

// Would catch a batch system that starts a launcher again and again whose
// command is misspelt.
TEST(HostLauncherTest, ACommandThatIsNotThereIsAMistakeInTheConfiguration) {
  const TemporaryFolder folder;
  HostPool pool({});
  HostLauncher launcher({{.name = "h1", .command = {"/no/such"}}}, "ticket",
                        folder.path(), &pool);
  EXPECT_EQ(MessageOf<ConfigError>([&] { launcher.Step(); }),
            "cluster.ssh_command: the agent of host h1 cannot be started: "
            "execute: /no/such: No such file or directory");
}

// Its log may be writable at the next attempt.
TEST(HostLauncherTest, ALogThatCannotBeOpenedIsNoMistake) {
  const TemporaryFolder folder;
  HostPool pool({});
  HostLauncher launcher({{.name = "h1", .command = {"/no/such"}}}, "ticket",
                        folder.path(), &pool);
  MakeFolders(folder.path() / "host-h1.1.log");
  EXPECT_NO_THROW(launcher.Step());
}

}  // namespace
}  // namespace replicant::fleet
