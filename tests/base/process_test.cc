#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "tests/support/message_of.h"

namespace replicant {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::MessageOf;

constexpr seconds kTimeout(60);

// Runs a line of shell and returns how it ended and what it printed.
CommandResult Shell(const std::string& line, ProcessOptions options = {}) {
  options.command = {"sh", "-c", line};
  return RunCommand(std::move(options), kTimeout);
}

// Whether a process is there and not a zombie.
bool IsAlive(pid_t pid) {
  try {
    const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
    return stat.find(") Z ") == std::string::npos;
  } catch (const IoError&) {
    return false;
  }
}

TEST(ProcessTest, ReportsExitCodeAndSignal) {
  EXPECT_EQ(Shell("exit 3").status, (ExitStatus{3, 0}));
  EXPECT_EQ(Shell("kill -9 $$").status, (ExitStatus{-1, SIGKILL}));
  EXPECT_EQ((ExitStatus{3, 0}).ToString(), "exit code 3");
  EXPECT_EQ((ExitStatus{-1, SIGKILL}).ToString(), "signal 9 (Killed)");
}

// As a parent may have left it, and exec keeps it.
TEST(ProcessTest, AnIgnoredSigchldHidesNoEnd) {
  ::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(Shell("exit 3").status.code, 3);
  ::signal(SIGCHLD, SIG_DFL);
}

TEST(ProcessTest, ReadsItsInputFromADescriptor) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(::write(ends[1], "abc", 3), 3);
  ::close(ends[1]);
  EXPECT_EQ(Shell("cat", {.stdin_fd = ends[0]}).output, "abc");
  EXPECT_EQ(::close(ends[0]), 0);
  EXPECT_EQ(MessageOf<IoError>([] { Shell("cat", {.stdin_fd = 987654}); }),
            "open stdin: descriptor 987654: Bad file descriptor");
}

TEST(ProcessTest, PassesArgumentsEnvironmentFolderAndProcessors) {
  const TemporaryFolder folder;
  const int cpu = CpuSet::OfThisThread().cpus().back();
  ::setenv("REPLICANT_TEST_KEPT", "kept", /*overwrite=*/1);
  ::setenv("REPLICANT_TEST_REPLACED", "old", /*overwrite=*/1);
  const CommandResult result = Shell(
      "echo $REPLICANT_TEST_KEPT $REPLICANT_TEST_REPLACED; pwd; "
      "grep Cpus_allowed_list /proc/self/status | cut -f2; cat",
      {.environment = {"REPLICANT_TEST_REPLACED=new"},
       .working_folder = folder.path(),
       .cpus = CpuSet({cpu})});
  EXPECT_EQ(result.output, "kept new\n" + folder.path().string() + "\n" +
                               std::to_string(cpu) + "\n");
}

TEST(ProcessTest, ProgramThatCannotRunIsAnErrorAtOnce) {
  EXPECT_EQ(MessageOf([] { Process({.command = {"no-such-program"}}); }),
            "execute: no-such-program: No such file or directory");
  EXPECT_EQ(MessageOf([] { Process({.command = {}}); }),
            "Process: the command is empty");
  EXPECT_EQ(MessageOf([] {
              Process({.command = {"true"}, .working_folder = "/no/folder"});
            }),
            "change folder to: /no/folder: No such file or directory");
  EXPECT_EQ(MessageOf([] {
              Process({.command = {"true"}, .stdout_file = "/no/folder/out"});
            }),
            "open stdout: /no/folder/out: No such file or directory");
}

TEST(ProcessTest, WaitGivesUpAtItsTimeoutAndSignalReachesTheWholeGroup) {
  const TemporaryFolder folder;
  const auto out = folder.path() / "out";
  // the shell's own child is in the group, too
  Process process({.command = {"sh", "-c", "sleep 100 & echo $!; wait"},
                   .stdout_file = out});
  EXPECT_EQ(process.Wait(milliseconds(1)), std::nullopt);
  std::string text;
  while (text.empty()) text = ReadFile(out);
  const pid_t grandchild = std::stoi(text);

  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(kTimeout), (ExitStatus{-1, SIGTERM}));
  while (IsAlive(grandchild)) ::usleep(100);
  EXPECT_EQ(process.Wait(milliseconds(0)), (ExitStatus{-1, SIGTERM}));
}

TEST(ProcessTest, DestructorKillsTheGroupAndReapsTheChild) {
  pid_t pid = -1;
  {
    const Process process({.command = {"sleep", "100"}});
    pid = process.pid();
    EXPECT_TRUE(IsAlive(pid));
  }
  EXPECT_EQ(::kill(pid, 0), -1);
}

// The child that the dying parent leaves must go with it, whatever killed it.
TEST(ProcessTest, ChildDiesWithItsParent) {
  int report[2];
  ASSERT_EQ(::pipe(report), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    const Process child({.command = {"sleep", "100"}});
    const pid_t pid = child.pid();
    if (::write(report[1], &pid, sizeof(pid)) != sizeof(pid)) ::_exit(1);
    ::pause();
  }
  pid_t child = -1;
  ASSERT_EQ(::read(report[0], &child, sizeof(child)), ssize_t{sizeof(child)});
  EXPECT_TRUE(IsAlive(child));
  ::kill(parent, SIGKILL);
  while (IsAlive(child)) ::usleep(100);
}

TEST(ProcessTest, RunCommandThatTakesTooLongShowsWhatItPrinted) {
  // longer, where a shell takes so long to begin
  std::string message;
  for (int timeout_ms = 100;
       timeout_ms < 30'000 && !message.ends_with("begun\n"); timeout_ms *= 4) {
    message = MessageOf([&] {
      RunCommand({.command = {"sh", "-c", "echo begun; sleep 100"}},
                 milliseconds(timeout_ms));
    });
    EXPECT_TRUE(message.starts_with("sh: not finished after " +
                                    std::to_string(timeout_ms) +
                                    " ms; it printed:\n"))
        << message;
  }
  EXPECT_TRUE(message.ends_with(" ms; it printed:\nbegun\n")) << message;
}

TEST(StopSignalTest, CountsSignalsInsteadOfEndingTheProcess) {
  StopSignal stop;
  EXPECT_EQ(stop.count(), 0);
  ::raise(SIGTERM);
  EXPECT_EQ(stop.count(), 1);
  pollfd poll_fd{stop.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&poll_fd, 1, 0), 1);
  ::raise(SIGINT);
  EXPECT_EQ(stop.count(), 2);
}

// Would catch a second order where a system has sent one by two ways.
TEST(StopSignalTest, ASignalThatComesTwiceAtOnceCountsOnce) {
  ::signal(SIGHUP, SIG_DFL);
  const StopSignal stop;
  ::raise(SIGINT);
  ::raise(SIGINT);
  EXPECT_EQ(stop.count(), 1);
  for (const int signal : {SIGTERM, SIGTERM, SIGHUP}) ::raise(signal);
  EXPECT_EQ(stop.count(), 2);
}

// Would catch a role that ends out of turn when a batch system sends SIGTERM to
// all processes of a run.
TEST(StopSignalTest, AChildObeysTheSigtermOfItsParentAlone) {
  const std::string own = std::to_string(::getpid());
  EXPECT_EQ(
      RunCommand({.command = {"sh", "-c", "echo $REPLICANT_PARENT"}}, kTimeout)
          .output,
      own + "\n");
  const auto send = [](int signal) {
    const pid_t sender = ::fork();
    if (sender == 0) {
      ::kill(::getppid(), signal);
      ::_exit(0);
    }
    ::waitpid(sender, nullptr, 0);
  };
  ::signal(SIGHUP, SIG_DFL);
  ::setenv("REPLICANT_PARENT", std::to_string(::getppid()).c_str(), 1);
  {
    const StopSignal stop;
    send(SIGTERM);
    send(SIGHUP);
    EXPECT_EQ(stop.count(), 0);
    // of a terminal, or of this process
    send(SIGINT);
    EXPECT_EQ(stop.count(), 1);
    ::raise(SIGTERM);
    EXPECT_EQ(stop.count(), 2);
  }
  ::unsetenv("REPLICANT_PARENT");
  const StopSignal stop;
  send(SIGTERM);
  EXPECT_EQ(stop.count(), 1);
}

// A closed terminal and a reader that has gone must not end a run.
TEST(StopSignalTest, CountsAHangUpAndIgnoresABrokenPipe) {
  ::signal(SIGHUP, SIG_DFL);
  {
    const StopSignal stop;
    ::raise(SIGHUP);
    EXPECT_EQ(stop.count(), 1);
    EXPECT_TRUE(stop.is_termination());
  }
  ::raise(SIGPIPE);
}

TEST(StopSignalTest, LeavesAHangUpIgnoredUnderNohup) {
  ::signal(SIGHUP, SIG_IGN);
  {
    const StopSignal stop;
    ::raise(SIGHUP);
    EXPECT_EQ(stop.count(), 0);
  }
  ::raise(SIGHUP);
  ::signal(SIGHUP, SIG_DFL);
}

TEST(StopSignalDeathTest, HandlersAreRestoredByTheDestructor) {
  { const StopSignal stop; }
  EXPECT_EXIT(::raise(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");
  ::signal(SIGHUP, SIG_DFL);
  { const StopSignal stop; }
  EXPECT_EXIT(::raise(SIGHUP), ::testing::KilledBySignal(SIGHUP), "");
}

TEST(StopSignalDeathTest, SecondOneAtATimeIsABug) {
  const StopSignal stop;
  EXPECT_DEATH(StopSignal(), "a second StopSignal");
}

}  // namespace
}  // namespace replicant
