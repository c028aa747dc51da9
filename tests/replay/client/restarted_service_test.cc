#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "replay/client/batch_reader.h"
#include "tests/replay/client/batch_rows.h"

namespace replicant::replay {
namespace {

using std::chrono::seconds;
using testing::After;
using testing::EpisodeMaker;
using testing::Insert;
using testing::Load;
using testing::MakePixels;
using testing::RunningService;
using testing::StackedTable;

// A batch whose reply is lost begins anew: the lost reply may still be written.
TEST(RestartedServiceTest, ALostReplyLeavesItsMemoryToTheService) {
  const EpisodeMaker maker = MakePixels();
  auto service = std::make_unique<RunningService>(StackedTable(maker));
  const std::string endpoint = service->endpoint();
  BatchReader reader({.endpoints = {endpoint},
                      .shape = maker.shape,
                      .batch_size = 4,
                      .prefetch = 1,
                      .wait = seconds(20)});
  // a request waits for the first item while its service goes
  const auto give_up = After(seconds(60));
  while (service->counts().shared_memory_bytes == 0 &&
         Clock::Real().Now() < give_up) {
    std::this_thread::yield();
  }
  service.reset();
  service = std::make_unique<RunningService>(StackedTable(maker), endpoint);
  Insert(service->shard(), maker, 1, 2, 8);
  Batch batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  EXPECT_EQ(Load<uint64_t>(batch.observations, 0), 2u);
  EXPECT_GE(reader.metrics().lost_requests, 1);
}

TEST(RestartedServiceTest, ANewServiceIsReadAfterARestart) {
  const EpisodeMaker maker = MakePixels();
  auto service = std::make_unique<RunningService>(StackedTable(maker));
  const std::string endpoint = service->endpoint();
  Insert(service->shard(), maker, 1, 1, 8);
  BatchReader reader({.endpoints = {endpoint},
                      .shape = maker.shape,
                      .batch_size = 4,
                      .prefetch = 1});
  Batch batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  service.reset();
  service = std::make_unique<RunningService>(StackedTable(maker), endpoint);
  Insert(service->shard(), maker, 1, 2, 8);
  uint64_t episode = 1;
  while (episode == 1) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    episode = Load<uint64_t>(batch.observations, 0);
  }
  EXPECT_EQ(episode, 2u);
}

// A service without a checkpoint gives the keys of the one before it again.
TEST(RestartedServiceTest, PrioritiesOfAServiceBeforeARestartAreDropped) {
  const EpisodeMaker maker = MakePixels();
  std::optional<RunningService> service(std::in_place, StackedTable(maker));
  const std::string endpoint = service->endpoint();
  Insert(service->shard(), maker, 1, 1, 8);
  BatchReader reader({.endpoints = {endpoint},
                      .shape = maker.shape,
                      .batch_size = 8,
                      .prefetch = 1});
  Batch old, batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &old), ReadResult::kOk);
  service.reset();
  service.emplace(StackedTable(maker), endpoint);
  Insert(service->shard(), maker, 1, 2, 8);
  // batches of the first service may still be on the way
  do {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  } while (Load<uint64_t>(batch.observations, 0) == 1);
  reader.UpdatePriorities(old, std::vector<float>(8, 77.0f));
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  reader.UpdatePriorities(batch, std::vector<float>(8, 2.0f));
  const auto give_up = After(seconds(60));
  while (reader.metrics().sent_updates < 8 && Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  EXPECT_EQ(reader.metrics().dropped_updates, 8);
  while (service->shard().Status().tables[0].updates == 0 &&
         Clock::Real().Now() < give_up) {
    std::this_thread::yield();
  }
  EXPECT_EQ(service->shard().Status().tables[0].mass, 8 * 2.0);
}

// A service with ten steps of episode 1, and a reader that has had a batch.
class CountedStepsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Insert(service_->shard(), maker_, 1, 1, 10);
    reader_.emplace(BatchReaderOptions{
        .endpoints = {endpoint_}, .shape = maker_.shape, .batch_size = 8});
    Next();
  }
  void Next() {
    ASSERT_EQ(reader_->Next(After(seconds(60)), &batch_), ReadResult::kOk);
  }
  // A new service in its place, with steps of another episode.
  void Restart(uint64_t episode, int num_steps) {
    service_.reset();
    service_.emplace(StackedTable(maker_), endpoint_);
    Insert(service_->shard(), maker_, 1, episode, num_steps);
  }
  uint64_t episode() const { return Load<uint64_t>(batch_.observations, 0); }

  const EpisodeMaker maker_ = MakePixels();
  std::optional<RunningService> service_{std::in_place, StackedTable(maker_)};
  const std::string endpoint_ = service_->endpoint();
  std::optional<BatchReader> reader_;
  Batch batch_;
};

// A learner's count of steps does not fall when a service loses some of them.
TEST_F(CountedStepsTest, StepsThatAServiceLostStayCounted) {
  EXPECT_EQ(batch_.total_steps, 10);
  Restart(2, 4);
  // batches of the first service may still be on the way
  do {
    ASSERT_NO_FATAL_FAILURE(Next());
    EXPECT_EQ(batch_.total_steps, 10);
  } while (episode() == 1);
  Insert(service_->shard(), maker_, 1, 3, 6);
  while (batch_.total_steps < 16) ASSERT_NO_FATAL_FAILURE(Next());
  EXPECT_EQ(batch_.total_steps, 16);
  EXPECT_EQ(batch_.lost_steps, 6);
  // the next one goes further before its first answer; 6 are still lost
  Restart(4, 12);
  do {
    ASSERT_NO_FATAL_FAILURE(Next());
  } while (episode() != 4);
  EXPECT_GE(batch_.total_steps, 6 + 12);
}

// A learner that restarts gives its new reader the count.
TEST(RestartedServiceTest, StepsLostBeforeTheReaderCount) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(StackedTable(maker));
  Insert(service.shard(), maker, 1, 1, 10);
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 8});
  reader.SetLostSteps(200);
  const auto give_up = After(seconds(60));
  Batch batch;
  // batches of before may still be on the way
  while (batch.lost_steps == 0 && Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(give_up, &batch), ReadResult::kOk);
  }
  EXPECT_EQ(batch.lost_steps, 200);
  EXPECT_EQ(batch.total_steps, 210);
}

// A service that ends may answer without items before it goes.
TEST_F(CountedStepsTest, StepsBeforeAnOrderlyEndStayCounted) {
  service_->Close();
  const auto give_up = After(seconds(60));
  while (reader_->metrics().partial_replies == 0 &&
         Clock::Real().Now() < give_up) {
    // makes room for requests, until no batch is left
    static_cast<void>(reader_->Next(Clock::Real().Now(), &batch_));
  }
  Restart(2, 4);
  do {
    ASSERT_NO_FATAL_FAILURE(Next());
  } while (episode() == 1);
  EXPECT_GE(batch_.total_steps, 10);
}

}  // namespace
}  // namespace replicant::replay
