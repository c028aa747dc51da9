// A reader that shares its memory is killed: the memory comes back, and nobody
// else waits for it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "replay/client/batch_reader.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

namespace replicant::replay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::After;
using testing::EpisodeMaker;
using testing::RunningService;

// A process that reads batches as fast as it can until it is killed. Made
// before this process starts a thread.
class ReaderProcess {
 public:
  ReaderProcess(const StepShape& shape, int64_t window) {
    EXPECT_EQ(pipe(to_), 0);
    EXPECT_EQ(pipe(from_), 0);
    pid_ = fork();
    if (pid_ != 0) return;
    char endpoint[256] = {};
    if (read(to_[0], endpoint, sizeof(endpoint) - 1) <= 0) _exit(1);
    BatchReader reader({.endpoints = {endpoint},
                        .shape = shape,
                        .window = window,
                        .batch_size = 64});
    Batch batch;
    while (reader.Next(After(seconds(60)), &batch) == ReadResult::kOk) {
      if (write(from_[1], "x", 1) != 1) break;
    }
    _exit(1);
  }
  void Start(const std::string& endpoint) {
    EXPECT_EQ(write(to_[1], endpoint.data(), endpoint.size()),
              static_cast<ssize_t>(endpoint.size()));
  }
  void AwaitBatches(int count) {
    char byte;
    for (int i = 0; i < count; ++i) EXPECT_EQ(read(from_[0], &byte, 1), 1);
  }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  int to_[2], from_[2];
  pid_t pid_;
};

// Blocks of memory of this kind that this process maps.
int CountMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:replicant") != std::string::npos) ++count;
  }
  return count;
}

void KillAReader(const NStepConfig& items) {
  const EpisodeMaker maker = testing::MakePixels();
  ReaderProcess victim(maker.shape, items.window);
  FakeClock clock;
  rpc::ServerOptions server = RunningService::FastTicks();
  server.clock = &clock;
  RunningService service(testing::OpenTable(maker, items),
                         replicant::testing::OwnAddress(), server);
  uint64_t sequence = 0;
  for (auto& chunk : maker.Chunks(/*episode=*/1, /*num_steps=*/200)) {
    ASSERT_EQ(service.shard().TryInsert(1, ++sequence, std::move(chunk)),
              InsertResult::kInserted);
  }
  {
    BatchReader reader({.endpoints = {service.endpoint()},
                        .shape = maker.shape,
                        .window = items.window,
                        .batch_size = 64});
    Batch batch;
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    const auto settle = [&](int64_t bytes) {
      const auto give_up = After(seconds(60));
      while (service.counts().shared_memory_bytes != bytes &&
             Clock::Real().Now() < give_up) {
        clock.Advance(milliseconds(100));
        ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
      }
      EXPECT_EQ(service.counts().shared_memory_bytes, bytes);
    };
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    }
    const int64_t own_bytes = service.counts().shared_memory_bytes;
    EXPECT_GT(own_bytes, 0);
    victim.Start(service.endpoint());
    victim.AwaitBatches(5);
    EXPECT_GT(service.counts().shared_memory_bytes, own_bytes);
    victim.Kill();
    // the time stands still: nobody waits for the dead
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    }
    settle(own_bytes);
  }
  const auto give_up = After(seconds(60));
  while (CountMappings() > 0 && Clock::Real().Now() < give_up) {
    clock.Advance(milliseconds(100));
    std::this_thread::yield();
  }
  EXPECT_EQ(CountMappings(), 0);
}

TEST(ReaderKillTest, MemoryOfAKilledReaderReturnsAndOthersDoNotStall) {
  KillAReader({.n_step = 3, .stack = 3});
}

TEST(ReaderKillTest, TheSameHoldsForAReaderOfWindows) {
  KillAReader({.stack = 3, .window = 5});
}

}  // namespace
}  // namespace replicant::replay
