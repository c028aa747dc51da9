#include "fleet/run_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <future>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class RunFolderTest : public ::testing::Test {
 protected:
  RunSection Config() const {
    return {.name = "walker", .dir = path_.string(), .seed = 7};
  }
  std::string File(const char* name) const { return ReadFile(path_ / name); }

  const TemporaryFolder parent_;
  const std::filesystem::path path_ = parent_.path() / "a" / "run";
};

TEST_F(RunFolderTest, ANewFolderSaysWhatIsRun) {
  const RunFolder folder = RunFolder::Create(Config(), "run:\n  seed: 7\n");
  EXPECT_EQ(folder.path(), path_);
  EXPECT_EQ(folder.num_starts(), 1);
  EXPECT_EQ(File("config.yaml"), "run:\n  seed: 7\n");
  // the version comes from the repository that this was built in
  EXPECT_THAT(File("run.yaml"),
              MatchesRegex("name: walker\nseed: 7\nstarts:\n"
                           "  - time: 20..-..-..T..:..:..Z\n"
                           "    version: .?[0-9.]+ .(git [0-9a-f+changes]+|no "
                           "git)..?\n    process: .*/[0-9]+.?\n"));
  EXPECT_EQ(File("state.yaml"), "status: running\nstarts: 1\n");
  EXPECT_EQ(folder.LogFile({"actor", 3}, 2), path_ / "logs" / "actor-3.2.log");
  EXPECT_TRUE(std::filesystem::is_directory(path_ / "logs"));
}

TEST_F(RunFolderTest, WithoutANameForItTheFolderIsCalledAfterTheTime) {
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(parent_.path());
  const RunFolder first = RunFolder::Create({.name = "x"}, "{}\n");
  const RunFolder second = RunFolder::Create({.name = "x"}, "{}\n");
  std::filesystem::current_path(before);
  EXPECT_THAT(first.path().string(),
              MatchesRegex(".*/runs/x-20[0-9]{6}-[0-9]{6}"));
  EXPECT_NE(first.path(), second.path());
  EXPECT_TRUE(std::filesystem::exists(second.path() / "config.yaml"));
}

// Would catch a log that a second process of one number appends to, after a
// full disk has kept the number out of the state.
TEST_F(RunFolderTest, LogsCountWhereTheStateWasNotWritten) {
  {
    RunFolder folder = RunFolder::Create(Config(), "{}\n");
    std::ofstream(folder.LogFile({"actor", 0}, 3)) << "";
    std::ofstream(path_ / "logs" / "last-evaluation.log") << "";
    std::ofstream(path_ / "logs" / "host-me@node-2.example.1.log") << "";
  }
  // a name that state.yaml cannot hold would end the second one
  static_cast<void>(RunFolder::Resume(path_));
  RunFolder folder = RunFolder::Resume(path_);
  EXPECT_EQ(folder.NextIncarnation({"actor", 0}), 4u);
  EXPECT_EQ(folder.NextIncarnation({"learner", 0}), 1u);
}

TEST_F(RunFolderTest, AResumedRunGoesOnCounting) {
  {
    RunFolder folder = RunFolder::Create(Config(), "{}\n");
    EXPECT_EQ(folder.NextIncarnation({"actor", 0}), 1u);
    EXPECT_EQ(folder.NextIncarnation({"actor", 0}), 2u);
    EXPECT_EQ(folder.NextIncarnation({"learner", 0}), 1u);
    folder.SetStatus(RunStatus::kStopped);
  }
  EXPECT_EQ(File("state.yaml"),
            "status: stopped\nstarts: 1\nroles:\n  actor-0: {last: 2}\n"
            "  learner-0: {last: 1}\n");
  EXPECT_EQ(RunFolder::ConfigFile(path_), path_ / "config.yaml");
  EXPECT_FALSE(RunFolder::IsOver(path_));
  RunFolder folder = RunFolder::Resume(path_);
  EXPECT_EQ(folder.previous_status(), RunStatus::kStopped);
  EXPECT_EQ(folder.num_starts(), 2);
  EXPECT_EQ(folder.NextIncarnation({"actor", 0}), 3u);
  EXPECT_EQ(folder.NextIncarnation({"actor", 1}), 1u);
  EXPECT_THAT(File("state.yaml"), StartsWith("status: running\nstarts: 2\n"));
  const std::string run = File("run.yaml");
  EXPECT_THAT(run, StartsWith("name: walker\nseed: 7\nstarts:\n"));
  EXPECT_NE(run.find("- time"), run.rfind("- time"));
}

// Would catch hosts that wait for a run which a person has stopped.
TEST_F(RunFolderTest, ARunThatWasStoppedForGoodIsOverUntilItIsResumed) {
  {
    RunFolder folder = RunFolder::Create(Config(), "{}\n");
    folder.SetStatus(RunStatus::kStopped, /*is_final=*/true);
  }
  EXPECT_EQ(File("state.yaml"), "status: stopped\nfinal: true\nstarts: 1\n");
  EXPECT_TRUE(RunFolder::IsOver(path_));
  const RunFolder folder = RunFolder::Resume(path_);
  EXPECT_EQ(File("state.yaml"), "status: running\nstarts: 2\n");
  EXPECT_FALSE(RunFolder::IsOver(path_));
}

// Would catch hosts that wait for a run which is over, since a resume failed.
TEST_F(RunFolderTest, AStartThatHasFailedLeavesTheStatusThatItFound) {
  {
    RunFolder folder = RunFolder::Create(Config(), "{}\n");
    folder.SetStatus(RunStatus::kStopped, /*is_final=*/true);
  }
  { RunFolder::Resume(path_).RestoreStatus(); }
  EXPECT_EQ(File("state.yaml"), "status: stopped\nfinal: true\nstarts: 2\n");
  // that one was killed
  { RunFolder::Resume(path_); }
  { RunFolder::Resume(path_).RestoreStatus(); }
  EXPECT_EQ(File("state.yaml"), "status: failed\nstarts: 4\n");
}

// Would catch a state that is larger than a configuration may be.
TEST_F(RunFolderTest, ARunOfManyRolesGoesOn) {
  constexpr uint32_t kRoles = 10'000;
  {
    RunFolder folder = RunFolder::Create(Config(), "{}\n");
    for (uint32_t i = 0; i < kRoles; ++i) folder.NextIncarnation({"actor", i});
    folder.SetStatus(RunStatus::kStopped);
  }
  EXPECT_EQ(RunFolder::StatusOf(path_), RunStatus::kStopped);
  RunFolder folder = RunFolder::Resume(path_);
  EXPECT_EQ(folder.NextIncarnation({"actor", kRoles - 1}), 2u);
}

// A resume that fails leaves the configuration that fits the checkpoints.
TEST_F(RunFolderTest, AChangedConfigurationCountsOnceTheRunHasStartedWithIt) {
  { RunFolder::Create(Config(), "run:\n  seed: 7\n"); }
  {
    const RunFolder failed = RunFolder::Resume(path_, "run:\n  seed: 8\n");
    EXPECT_EQ(failed.config_file(), path_ / "config.new.yaml");
    EXPECT_EQ(File("config.new.yaml"), "run:\n  seed: 8\n");
    EXPECT_EQ(File("config.yaml"), "run:\n  seed: 7\n");
  }
  EXPECT_EQ(File("config.yaml"), "run:\n  seed: 7\n");
  EXPECT_FALSE(std::filesystem::exists(path_ / "config.new.yaml"));
  {
    RunFolder started = RunFolder::Resume(path_, "run:\n  seed: 9\n");
    started.AdoptConfig();
    started.AwaitDisk(std::chrono::seconds(60));
    EXPECT_EQ(File("config.yaml"), "run:\n  seed: 9\n");
    // a role that starts again reads it
    EXPECT_EQ(File("config.new.yaml"), "run:\n  seed: 9\n");
  }
  EXPECT_FALSE(std::filesystem::exists(path_ / "config.new.yaml"));
  EXPECT_EQ(RunFolder::Resume(path_, "run:\n  seed: 9\n").config_file(),
            path_ / "config.yaml");
}

TEST_F(RunFolderTest, RefusesAFolderThatHoldsSomething) {
  MakeFolders(path_);
  std::ofstream(path_ / "notes.txt") << "mine";
  const std::string message =
      "run folder " + path_.string() +
      ": it is not empty; hint: fleet --resume FOLDER resumes a run; "
      "hint: --set run.dir=FOLDER puts the run somewhere else";
  EXPECT_EQ(MessageOf<IoError>([&] { RunFolder::Create(Config(), ""); }),
            message);
  // and again: what the refusal left behind changes nothing
  EXPECT_EQ(MessageOf<IoError>([&] { RunFolder::Create(Config(), ""); }),
            message);
  std::filesystem::remove(path_ / "notes.txt");
  // nor do files count as a run's
  for (const char* name : {"lock", "letter.tmp-999999-1"}) {
    std::ofstream(path_ / name) << "door code 4711";
    EXPECT_EQ(MessageOf<IoError>([&] { RunFolder::Create(Config(), ""); }),
              message);
    EXPECT_EQ(ReadFile(path_ / name), "door code 4711");
    std::filesystem::remove(path_ / name);
  }
  EXPECT_EQ(MessageOf<IoError>([&] { RunFolder::Create(Config(), ""); }),
            "no exception");
}

// Would catch a run that can be neither started nor resumed, since its fleet
// was killed, or found no room on the disk, while it made the folder.
TEST_F(RunFolderTest, AStartThatWasCutShortIsMadeAgain) {
  const auto fill = [this](const std::string& last) {
    std::filesystem::remove_all(path_);
    MakeFolders(path_);
    std::ofstream(path_ / "lock") << "gone/4711";
    for (const char* name : {"config.yaml", "run.yaml", "state.yaml"}) {
      if (name == last) {
        std::ofstream(path_ / (last + ".tmp-4711-0")) << "cut sh";
        return;
      }
      std::ofstream(path_ / name) << "old";
      MakeFolders(path_ / "logs");
    }
  };
  for (const char* last : {"config.yaml", "run.yaml", "state.yaml"}) {
    fill(last);
    EXPECT_EQ(RunFolder::Create(Config(), "new\n").num_starts(), 1) << last;
    EXPECT_EQ(File("config.yaml"), "new\n");
    EXPECT_THAT(File("run.yaml"), StartsWith("name: walker\nseed: 7\n"));
    EXPECT_EQ(File("state.yaml"), "status: running\nstarts: 1\n");
  }
  // other files are somebody's
  for (const char* other : {"notes.txt", "logs/notes.txt", "state.yaml"}) {
    fill("state.yaml");
    std::ofstream(path_ / other) << "mine";
    EXPECT_THAT(MessageOf<IoError>([&] { RunFolder::Create(Config(), ""); }),
                HasSubstr("it is not empty"))
        << other;
  }
  // and so is a configuration where no fleet has been
  fill("state.yaml");
  std::filesystem::remove(path_ / "lock");
  EXPECT_THAT(MessageOf<IoError>([&] { RunFolder::Create(Config(), ""); }),
              HasSubstr("it is not empty"));
  EXPECT_EQ(File("config.yaml"), "old");
}

TEST_F(RunFolderTest, TwoFleetsNeverShareAFolder) {
  std::optional<RunFolder> folder(RunFolder::Create(Config(), "{}\n"));
  EXPECT_EQ(
      MessageOf<IoError>([&] { RunFolder::Resume(path_); }),
      "run folder " + path_.string() +
          ": another fleet or learner is running in it: in use by process " +
          HostAndPid());
  EXPECT_THAT(
      MessageOf<IoError>([&] { RunFolder::Create(Config(), ""); }),
      HasSubstr(
          "another fleet or learner is running in it: in use by process " +
          HostAndPid()));
  // a moved folder is the same one
  {
    const RunFolder moved = std::move(*folder);
    EXPECT_THROW(RunFolder::Resume(path_), IoError);
  }
  EXPECT_EQ(RunFolder::Resume(path_).num_starts(), 2);
}

TEST_F(RunFolderTest, ResumesOnlyARun) {
  const auto resume = [this] {
    return MessageOf([&] { RunFolder::Resume(path_); });
  };
  EXPECT_EQ(resume(), "run folder " + path_.string() + ": no such folder");
  MakeFolders(path_);
  EXPECT_EQ(resume(), "run folder " + path_.string() +
                          ": no run to resume, because it has no config.yaml");
  { RunFolder::Create(Config(), "{}\n"); }
  AtomicWriteFile(path_ / "state.yaml", "status: over\nstarts: 1\n");
  EXPECT_EQ(resume(), (path_ / "state.yaml").string() +
                          ":1:9: status: 'over' is not one of running, "
                          "complete, stopped, failed (status of the run)");
  std::filesystem::remove(path_ / "state.yaml");
  EXPECT_EQ(resume(), "run folder " + path_.string() +
                          ": no run to resume, because it has no state.yaml");
}

TEST_F(RunFolderTest, AFileOrFolderInARunNamesIt) {
  { RunFolder::Create(Config(), "{}\n"); }
  const auto step = path_ / "checkpoints" / "step-000000000050";
  MakeFolders(step);
  std::ofstream(step / "variables.safetensors") << "x";
  for (const auto& given : {path_, path_ / "config.yaml", path_ / "logs", step,
                            step / "variables.safetensors"}) {
    EXPECT_EQ(RunFolder::Find(given), path_) << given;
  }
  EXPECT_EQ(RunFolder::Find(parent_.path()), parent_.path());
  EXPECT_EQ(RunFolder::Find("/nowhere/run"), "/nowhere/run");
}

TEST_F(RunFolderTest, SaysWhereItCannotBeMade) {
  // below a file there is no folder, whoever asks
  std::ofstream(parent_.path() / "a") << "a file";
  EXPECT_EQ(MessageOf<IoError>([&] { RunFolder::Create(Config(), ""); }),
            "run folder " + path_.string() +
                ": create folder: " + path_.string() +
                ": Not a directory; hint: --set run.dir=FOLDER puts the run "
                "somewhere else");
}

// A disk that takes no byte more, in a child process: the limit cannot be
// taken back.
TEST_F(RunFolderTest, SaysThatNothingCanBeWritten) {
  const auto message_file = parent_.path() / "message";
  const int message_fd = ::open(message_file.c_str(), O_CREAT | O_RDWR, 0666);
  ASSERT_GE(message_fd, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    // the lock's few bytes fit, the configuration does not
    const rlimit limit = {1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = MessageOf<IoError>(
        [&] { RunFolder::Create(Config(), std::string(5000, '#')); });
    std::_Exit(::write(message_fd, message.data(), message.size()) > 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::close(message_fd);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(ReadFile(message_file),
              MatchesRegex("run folder .*/a/run: write: .*: File too large; "
                           "hint: --set run.dir=FOLDER puts the run somewhere "
                           "else"));
}

TEST(LogTailTest, ShowsTheLastWholeLines) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "log";
  EXPECT_EQ(LogTail(file, 3, "  "), "");
  std::ofstream(file) << "one\ntwo\nthree\nfour";
  EXPECT_EQ(LogTail(file, 3, "  "), "  two\n  three\n  four");
  EXPECT_EQ(LogTail(file, 9, ""), "one\ntwo\nthree\nfour");
  std::ofstream(file) << "why\n-----\nsignal 9 (Killed).\n-----\n\n";
  EXPECT_EQ(LogTail(file, 2, ""), "why\nsignal 9 (Killed).");
  {
    std::ofstream log(file);
    for (int i = 0; i < 10'000; ++i) log << "line " << i << "\n";
  }
  EXPECT_EQ(LogTail(file, 1, "> "), "> line 9999");
  // no half of a line where the read begins
  EXPECT_THAT(LogTail(file, 100'000, ""), StartsWith("line "));
  std::ofstream(file).close();
  EXPECT_EQ(LogTail(file, 3, ""), "");
}

TEST_F(RunFolderTest, TheLastReportIsWrittenWhileTheDiskIsBusy) {
  RunFolder folder = RunFolder::Create(Config(), "{}\n");
  const std::filesystem::path report = RunFolder::ReportFile(folder.path());
  std::promise<void> is_busy;
  std::promise<void> may_go_on;
  static_cast<void>(folder.disk()->Post([&] {
    is_busy.set_value();
    may_go_on.get_future().wait();
  }));
  is_busy.get_future().wait();
  folder.SetLastReport("the end");
  folder.SetReport("one of many");
  may_go_on.set_value();
  folder.AwaitDisk(std::chrono::seconds(60));
  EXPECT_EQ(ReadFile(report), "the end");
}

}  // namespace
}  // namespace replicant::fleet
