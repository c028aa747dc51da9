#include "fleet/host_agent.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/curve.h"
#include "base/rpc/group_key.h"
#include "base/rpc/server.h"
#include "base/thread.h"
#include "fleet/host_launcher.h"
#include "fleet/host_pool.h"
#include "fleet/protocol/agent_messages.h"

namespace replicant::fleet {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

bool Await(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

// A launcher in threads of this process, and an agent in the test's thread.
class HostAgentTest : public ::testing::Test {
 protected:
  HostAgentTest() {
    rpc::WriteKeyPair(key_file_, rpc::GenerateCurveKeyPair());
    Serve(2.0);
  }
  ~HostAgentTest() override { StopServing(); }

  void Serve(double timeout_s) {
    pool_.emplace(HostPool::Options{.files = {{"config.yaml", "x: 1\n"}},
                                    .timeout = FromSeconds(timeout_s)});
    context_.emplace();
    const auto key = rpc::GroupKey::FromFile(key_file_);
    guard_ = key.MakeGuard(*context_);
    rpc::ServerOptions options;
    options.socket.curve = key.server_role();
    server_.emplace(*context_, SupervisionProtocol(), options);
    pool_->AttachTo(*server_);
    endpoint_ = server_->Bind("tcp://127.0.0.1:*");
    loop_.emplace("launcher",
                  [this](const Thread::StopToken&) { server_->Run(); });
  }
  void StopServing() {
    if (!loop_) return;
    server_->Stop();
    loop_.reset();
  }

  // Runs the agent until it ends, with `command` for every role; `act` runs
  // meanwhile.
  bool RunAgent(const std::vector<std::string>& command,
                const std::function<void()>& act) {
    const Thread actions("actions", [&](const Thread::StopToken&) { act(); });
    HostAgentOptions options{
        .find_launcher =
            [this] {
              return LauncherAddress{endpoint_, key_file_};
            },
        .is_over = is_over_,
        .make_command =
            [&](const RoleId&, const std::filesystem::path& folder) {
              folder_of_agent_ = folder;
              return command;
            },
        .host = "test",
        .slots = 1,
        .join_timeout = 5s,
        .drain_timeout = 20s,
        .lease_fd = lease_fd_};
    return RunHostAgent(options, stop_);
  }
  std::unique_ptr<RoleProcess> Start() {
    EXPECT_TRUE(Await([&] { return pool_->HasRoom({"actor", 0}); }));
    return pool_->Start({"actor", 3}, 2, {"more"}, log_);
  }

  TemporaryFolder folder_;
  const std::filesystem::path key_file_ = folder_.path() / "run.key";
  const std::filesystem::path log_ = folder_.path() / "log";
  StopSignal stop_;
  std::optional<HostPool> pool_;
  std::optional<rpc::ZmqContext> context_;
  std::unique_ptr<rpc::ZapHandler> guard_;
  std::optional<rpc::Server> server_;
  std::optional<Thread> loop_;
  std::string endpoint_;
  std::filesystem::path folder_of_agent_;
  std::function<bool()> is_over_ = [] { return false; };
  int lease_fd_ = -1;
};

// Would catch an agent without the files, the place or the log of a role.
TEST_F(HostAgentTest, RunsWhatItIsToldAndSaysHowItEnded) {
  std::optional<ExitStatus> status;
  const bool is_good = RunAgent(
      {"/bin/sh", "-c",
       "echo $0 $REPLICANT_ROLE $REPLICANT_ROLE_INDEX $REPLICANT_INCARNATION; "
       "stat -c %a $REPLICANT_KEY_FILE; cat $(dirname "
       "$REPLICANT_KEY_FILE)/config.yaml; exit 5"},
      [&] {
        const auto process = Start();
        Await([&] { return process->Poll().has_value(); });
        status = process->Poll();
        Await([&] {
          return std::filesystem::exists(log_) &&
                 ReadFile(log_).find("x: 1") != std::string::npos;
        });
        pool_->Dismiss("done");
      });
  EXPECT_TRUE(is_good);
  EXPECT_EQ(status, (ExitStatus{5, 0}));
  EXPECT_EQ(ReadFile(log_), "more actor 3 2\n600\nx: 1\n");
  EXPECT_FALSE(std::filesystem::exists(folder_of_agent_));
}

// Would catch a process that outlives its launcher.
TEST_F(HostAgentTest, EndsWithItsLease) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  lease_fd_ = ends[0];
  std::unique_ptr<RoleProcess> process;
  RunAgent({"/bin/sh", "-c", "echo $$; exec sleep 1000"}, [&] {
    process = Start();
    Await([&] {
      return std::filesystem::exists(log_) && !ReadFile(log_).empty();
    });
    ::close(ends[1]);
  });
  const int pid = std::stoi(ReadFile(log_));
  EXPECT_EQ(::kill(pid, 0), -1);
  ::close(ends[0]);
  process.reset();
}

TEST_F(HostAgentTest, EndsItsProcessesWithoutALauncher) {
  std::unique_ptr<RoleProcess> process;
  const bool is_good =
      RunAgent({"/bin/sh", "-c", "echo $$; exec sleep 1000"}, [&] {
        process = Start();
        Await([&] {
          return std::filesystem::exists(log_) && !ReadFile(log_).empty();
        });
        StopServing();  // the socket stays and answers nobody
      });
  EXPECT_FALSE(is_good);
  EXPECT_EQ(::kill(std::stoi(ReadFile(log_)), 0), -1);
  process.reset();
}

// Would catch an agent that ends while the run's folder cannot be read.
TEST_F(HostAgentTest, AStateThatCannotBeReadIsNoEnd) {
  std::atomic<int> num_looks = 0;
  is_over_ = [&]() -> bool {
    ++num_looks;
    throw ConfigError("state.yaml: damaged");
  };
  EXPECT_FALSE(RunAgent({"/bin/true"}, [&] {
    EXPECT_TRUE(Await([&] { return pool_->HasRoom({"actor", 0}); }));
    StopServing();
  }));
  EXPECT_GT(num_looks, 0);
}

// Would catch an actor that counts as failed, or steps that are dropped.
TEST_F(HostAgentTest, DrainsAndSaysGoodbyeOnASignal) {
  bool was_lost = false;
  const bool is_good = RunAgent(
      {"/bin/sh", "-c",
       "trap 'echo drained; exit 0' TERM; echo ready; while true; do sleep "
       "0.05; done"},
      [&] {
        const auto process = Start();
        Await([&] {
          return std::filesystem::exists(log_) && !ReadFile(log_).empty();
        });
        ::kill(::getpid(), SIGTERM);
        Await([&] { return process->Poll().has_value(); });
        was_lost = process->IsLost();
      });
  EXPECT_TRUE(is_good);
  EXPECT_TRUE(was_lost);
  // the disk's thread writes the last lines
  EXPECT_TRUE(Await([&] { return ReadFile(log_).ends_with("drained\n"); }));
}

// Would catch an agent that asks again for files that take long to come.
TEST_F(HostAgentTest, AsksOnceForTheFilesOfTheRun) {
  StopServing();
  rpc::ServerOptions server_options;
  server_options.socket.curve =
      rpc::GroupKey::FromFile(key_file_).server_role();
  rpc::Server launcher(*context_, SupervisionProtocol(), server_options);
  std::atomic<int> num_joins = 0;
  launcher.Handle(kJoinKind, [&](rpc::Request&, rpc::Responder responder) {
    ++num_joins;
    // longer than the agent waits for a session
    std::this_thread::sleep_for(2500ms);
    responder.Reply(rpc::EncodeMessage(
        JoinReply{.refusal = {}, .timeout_s = 60.0, .files = {}}));
  });
  launcher.Handle(kReportKind, [](rpc::Request&, rpc::Responder responder) {
    responder.Reply(rpc::EncodeMessage(
        ReportReply{ReportReply::Verdict::kLeave, "done", {}}));
  });
  endpoint_ = launcher.Bind("tcp://127.0.0.1:*");
  loop_.emplace("launcher", [&](const Thread::StopToken&) { launcher.Run(); });
  EXPECT_TRUE(RunAgent({"/bin/true"}, [] {}));
  EXPECT_EQ(num_joins, 1);
  launcher.Stop();
  loop_.reset();
}

TEST_F(HostAgentTest, AWrongKeyIsNamed) {
  const std::filesystem::path other = folder_.path() / "other.key";
  rpc::WriteKeyPair(other, rpc::GenerateCurveKeyPair());
  const HostAgentOptions options{.find_launcher =
                                     [&] {
                                       return LauncherAddress{endpoint_, other};
                                     },
                                 .make_command = {},
                                 .host = "test",
                                 .join_timeout = 60s};
  try {
    RunHostAgent(options, stop_);
    FAIL() << "no CommError";
  } catch (const CommError& e) {
    EXPECT_THAT(e.what(), HasSubstr("key"));
  }
}

// Would catch lines of a log that are lost while the launcher's disk stands
// still, and the end of a process that is told only after that.
TEST_F(HostAgentTest, KeepsALogThatTheLauncherDoesNotTake) {
  const std::filesystem::path started = folder_.path() / "started";
  const std::filesystem::path told = folder_.path() / "told";
  // a writer waits for its first reader
  const std::filesystem::path stalled = folder_.path() / "stalled";
  ASSERT_EQ(::mkfifo(stalled.c_str(), 0600), 0);
  int reader = -1;
  const auto exists = [](const std::filesystem::path& file) {
    return Await([&] { return std::filesystem::exists(file); });
  };
  const bool is_good = RunAgent(
      {"/bin/sh", "-c",
       "[ $REPLICANT_INCARNATION = 1 ] && echo lost && exit 5; trap 'touch " +
           told.string() + "' USR1; echo line; touch " + started.string() +
           "; while true; do sleep 0.05; done"},
      [&] {
        // a log of another host fills the queue
        pool_->Join({.agent = 99,
                     .host = "other",
                     .role = "replay",
                     .processors = 1,
                     .slots = 1});
        const RoleId other{"replay", 0};
        const auto filler = pool_->Start(other, 1, {}, stalled);
        AgentReport report{.agent = 99};
        report.logs = {{.id = other,
                        .incarnation = 1,
                        .offset = 0,
                        .bytes = std::string(kMaxLogChunkBytes, 'x')}};
        while (pool_->Report(report).takes_logs) {
        }
        EXPECT_TRUE(Await([&] { return pool_->HasRoom({"actor", 0}); }));
        const auto first =
            pool_->Start({"actor", 0}, 1, {}, folder_.path() / "first");
        EXPECT_TRUE(Await([&] { return first->Poll().has_value(); }));
        EXPECT_EQ(first->Poll(), (ExitStatus{5, 0}));

        const auto process = pool_->Start({"actor", 0}, 2, {}, log_);
        EXPECT_TRUE(exists(started));
        // the second signal answers a report that was made after the line
        for (int i = 0; i < 2; ++i) {
          process->Signal(SIGUSR1);
          EXPECT_TRUE(exists(told));
          std::filesystem::remove(told);
        }
        EXPECT_FALSE(std::filesystem::exists(log_));
        reader = ::open(stalled.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        EXPECT_TRUE(exists(log_));
        EXPECT_TRUE(
            Await([&] { return ReadFile(log_).starts_with("line\n"); }));
        pool_->Dismiss("done");
      });
  EXPECT_TRUE(is_good);
  StopServing();
  pool_.reset();
  ::close(reader);
}

// Would catch an agent that ends for good since it looked while the launcher
// was writing its files.
TEST_F(HostAgentTest, FilesThatAreNotWholeYetAreLookedAtAgain) {
  const Thread end("end", [&](const Thread::StopToken&) {
    EXPECT_TRUE(Await([&] { return pool_->HasRoom({"actor", 0}); }));
    pool_->Dismiss("done");
  });
  int num_looks = 0;
  const HostAgentOptions options{
      .find_launcher = [&]() -> LauncherAddress {
        switch (++num_looks) {
          case 1:
            throw ConfigError("addresses.yaml: damaged");
          case 2:
            // ESTALE of a network file system
            throw std::filesystem::filesystem_error("exists", {});
          case 3:
            // an address without its key
            return {"tcp://192.0.2.1:7", ""};
          default:
            return {endpoint_, key_file_};
        }
      },
      .is_launcher_fixed = false,
      .make_command = {},
      .host = "test",
      .join_timeout = 60s};
  EXPECT_TRUE(RunHostAgent(options, stop_));
  EXPECT_GE(num_looks, 4);
}

TEST_F(HostAgentTest, AFixedAddressWithoutItsKeyIsAnError) {
  const HostAgentOptions options{
      .find_launcher =
          [] {
            return LauncherAddress{"tcp://192.0.2.1:7", ""};
          },
      .make_command = {},
      .host = "test",
      .join_timeout = 60s};
  EXPECT_THROW(RunHostAgent(options, stop_), InvalidArgument);
}

TEST(TicketTest, HoldsAddressAndKey) {
  const TemporaryFolder folder;
  const auto key = folder.path() / "run.key";
  rpc::WriteKeyPair(key, rpc::GenerateCurveKeyPair());
  EXPECT_EQ(MakeTicket("tcp://10.0.0.2:7", key),
            "tcp://10.0.0.2:7\n" + ReadFile(key) + "end\n");
}

}  // namespace
}  // namespace replicant::fleet
