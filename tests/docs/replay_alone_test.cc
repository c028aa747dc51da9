// A reader who follows docs/replay.md gets what it shows: its service
// starts, and both of its clients print its first batches.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/fs.h"
#include "base/process.h"
#include "tests/replay/service/service_process.h"

namespace replicant::replay {
namespace {

using std::chrono::seconds;

const std::filesystem::path kRoot = REPLICANT_SOURCE_DIR;
constexpr std::string_view kEndpoint = "tcp://127.0.0.1:7001";

// The fenced blocks of a page with this info string, in order.
std::vector<std::string> BlocksOf(const std::string& page,
                                  const std::string& info) {
  std::vector<std::string> blocks;
  const std::string fence = "\n```";
  for (size_t at = page.find(fence); at != std::string::npos;) {
    const size_t begin = page.find('\n', at + 1) + 1;
    const size_t end = page.find(fence, begin - 1);
    REPLICANT_CHECK(end != std::string::npos, "a block has no end");
    if (page.substr(at + fence.size(), begin - 1 - at - fence.size()) == info) {
      blocks.push_back(page.substr(begin, end + 1 - begin));
    }
    at = page.find(fence, end + fence.size());
  }
  return blocks;
}

std::string With(std::string text, std::string_view from,
                 const std::string& to) {
  const size_t at = text.find(from);
  REPLICANT_CHECK(at != std::string::npos, "no {} in {}", from, text);
  return text.replace(at, from.size(), to);
}

std::string OutputOf(const std::vector<std::string>& command) {
  const CommandResult result =
      RunCommand({.command = command, .working_folder = kRoot}, seconds(120));
  EXPECT_TRUE(result.status.ok()) << result.status.ToString();
  return result.output;
}

TEST(ReplayAloneTest, ItsServiceAndItsClientsGiveItsBatches) {
  const std::string page = ReadFile(kRoot / "docs" / "replay.md");
  const auto configs = BlocksOf(page, "yaml");
  const auto scripts = BlocksOf(page, "python (a whole script)");
  const auto outputs = BlocksOf(page, "");
  ASSERT_EQ(configs.size(), 1u);
  ASSERT_EQ(scripts.size(), 1u);
  ASSERT_EQ(outputs.size(), 2u);

  const TemporaryFolder folder;
  testing::ServiceProcess service(REPLICANT_REPLAY, folder.path(),
                                  With(configs[0], "replay:\n", ""));
  service.Start();
  const std::filesystem::path script = folder.path() / "first_batch.py";
  std::ofstream(script) << With(scripts[0], kEndpoint, service.endpoint());
  EXPECT_EQ(OutputOf({REPLICANT_PYTHON, script.string()}), outputs[0]);
  EXPECT_EQ(OutputOf({REPLICANT_FIRST_BATCH, service.endpoint()}), outputs[1]);
  EXPECT_EQ(service.Status()["counts"]["inserted_steps"], 16);
  EXPECT_TRUE(service.Stop().ok());
}

TEST(ReplayAloneTest, ItsProgramIsTheExample) {
  const std::string page = ReadFile(kRoot / "docs" / "replay.md");
  EXPECT_EQ(
      BlocksOf(page, "cpp"),
      std::vector{ReadFile(kRoot / "examples/replay_alone/first_batch.cc")});
}

}  // namespace
}  // namespace replicant::replay
