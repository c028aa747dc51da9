// A client that was written from docs/replay_protocol.md speaks with the
// service.
#include <gtest/gtest.h>
#include <unistd.h>

#include <optional>

#include "base/fs.h"
#include "base/process.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

namespace replicant::replay {
namespace {

using replicant::testing::OwnAddress;
using std::chrono::seconds;
using testing::EpisodeMaker;
using testing::RunningService;

// One table, "t", of six items to sample.
ShardConfig ConfigOf(const EpisodeMaker& maker, const NStepConfig& n_step) {
  ShardConfig config = testing::OpenTable(maker, n_step);
  config.tables[0].name = "t";
  config.tables[0].rate_limiter.min_size_to_sample = 6;
  return config;
}

std::vector<std::string> CommandOf(const std::string& endpoint,
                                   const std::string& test_case) {
  return {REPLICANT_PYTHON,
          REPLICANT_SOURCE_DIR "/tests/replay/client/python_client.py",
          REPLICANT_SOURCE_DIR "/examples/replay_alone", endpoint, test_case};
}

void ExpectOk(const std::string& endpoint, const std::string& test_case) {
  const CommandResult result =
      RunCommand({.command = CommandOf(endpoint, test_case)}, seconds(60));
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.output, "ok\n");
}

// Waits, at most a minute.
template <typename Predicate>
void Await(const Predicate& is_reached) {
  const auto give_up = Clock::Real().Now() + seconds(60);
  while (!is_reached() && Clock::Real().Now() < give_up) ::usleep(1000);
  EXPECT_TRUE(is_reached());
}

TEST(PythonClientTest, InsertsSamplesUpdatesAndSaves) {
  const TemporaryFolder folder;
  RunningService service(
      ConfigOf(EpisodeMaker(), {.n_step = 2, .discount = 0.5}), OwnAddress(),
      RunningService::FastTicks(), {}, {.folder = folder.path()});
  ExpectOk(service.endpoint(), "basic");
  EXPECT_EQ(ReadCheckpointHead(folder.path(), 1).id, 17u);
}

TEST(PythonClientTest, ReadsAndWritesPixels) {
  for (const FrameCodec codec : {FrameCodec::kNone, FrameCodec::kLz4}) {
    const EpisodeMaker maker = testing::MakePixels(codec);
    RunningService service(ConfigOf(maker, {.n_step = 2, .stack = 3}));
    uint64_t sequence = 0;
    for (const auto& chunk : maker.Chunks(1, 10)) {
      ASSERT_EQ(service.shard().TryInsert(5, ++sequence, chunk),
                InsertResult::kInserted);
    }
    ExpectOk(service.endpoint(), "pixels");
  }
}

TEST(PythonClientTest, ReadsWindows) {
  const EpisodeMaker maker = testing::MakePixels();
  ShardConfig config = ConfigOf(maker, {.stack = 3, .window = 4, .period = 3});
  config.tables[0].rate_limiter.min_size_to_sample = 4;
  RunningService service(config);
  uint64_t sequence = 0;
  for (const auto& chunk : maker.Chunks(1, 11)) {
    ASSERT_EQ(service.shard().TryInsert(5, ++sequence, chunk),
              InsertResult::kInserted);
  }
  ExpectOk(service.endpoint(), "windows");
}

TEST(PythonClientTest, GoesOnWithARestartedService) {
  const TemporaryFolder folder;
  const ShardConfig config = ConfigOf(EpisodeMaker(), {});
  const std::filesystem::path output = folder.path() / "output";
  std::optional<RunningService> service(std::in_place, config);
  const std::string endpoint = service->endpoint();
  Process client({.command = CommandOf(endpoint, "restart"),
                  .stdout_file = output,
                  .stderr_file = output});
  Await([&] { return service->shard().num_steps() >= 12; });
  service.reset();
  service.emplace(config, endpoint);
  EXPECT_TRUE(client.Wait(seconds(60)).value_or(ExitStatus{.code = -2}).ok());
  EXPECT_EQ(ReadFile(output), "2 hellos\nok\n");
  // it knows what the first service had acknowledged
  EXPECT_GE(service->shard().Status().lost_steps, 12);
}

// The service keeps hearing from it while nobody calls it.
TEST(PythonClientTest, AnIdleWriterKeepsItsOpenEpisode) {
  const TemporaryFolder folder;
  const std::filesystem::path output = folder.path() / "output";
  FakeClock clock;
  rpc::ServerOptions options = RunningService::FastTicks();
  options.clock = &clock;
  RunningService service(ConfigOf(EpisodeMaker(), {}), OwnAddress(), options);
  int input[2];
  ASSERT_EQ(::pipe(input), 0);
  Process client({.command = CommandOf(service.endpoint(), "beat"),
                  .stdin_fd = input[0],
                  .stdout_file = output,
                  .stderr_file = output});
  ::close(input[0]);
  Await([&] {
    return std::filesystem::exists(output) && ReadFile(output) == "idle\n";
  });
  for (int i = 0; i < 5; ++i) {
    const uint64_t heard = service.server().metrics().messages_received;
    Await([&] { return service.server().metrics().messages_received > heard; });
    clock.Advance(seconds(4));
  }
  ASSERT_EQ(::write(input[1], "\n", 1), 1);
  ::close(input[1]);
  EXPECT_TRUE(client.Wait(seconds(60)).value_or(ExitStatus{.code = -2}).ok());
  EXPECT_EQ(ReadFile(output), "idle\nok\n");
}

}  // namespace
}  // namespace replicant::replay
