#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fs.h"

namespace replicant {
namespace {

// The child's report to its parent when it cannot start the program.
struct StartFailure {
  int error_number;
  // the call that failed, one of kStartCalls
  int call;
};
constexpr const char* kStartCalls[] = {"open stdin",     "open stdout",
                                       "open stderr",    "change folder to",
                                       "set processors", "execute"};
enum StartCall { kStdin, kStdout, kStderr, kChdir, kAffinity, kExec };

// Names, for a child and its children, the process whose signals they obey.
constexpr const char* kParentVariable = "REPLICANT_PARENT";

// An ignored SIGCHLD, which a program inherits through exec, lets the kernel
// forget how a child ended.
void KeepEndsOfChildren() {
  struct sigaction action {};
  if (::sigaction(SIGCHLD, nullptr, &action) == 0 &&
      action.sa_handler == SIG_IGN) {
    ::signal(SIGCHLD, SIG_DFL);
  }
}

// Environment of this process, overridden by `extra`, and with its own id.
std::vector<std::string> MergeEnvironment(std::vector<std::string> extra) {
  extra.push_back(fmt::format("{}={}", kParentVariable, ::getpid()));
  const auto name_of = [](std::string_view entry) {
    return entry.substr(0, entry.find('='));
  };
  std::vector<std::string> merged = extra;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    bool is_replaced = false;
    for (const std::string& e : extra) {
      is_replaced |= name_of(e) == name_of(*entry);
    }
    if (!is_replaced) merged.emplace_back(*entry);
  }
  return merged;
}

std::vector<char*> PointersTo(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Opens `path` as descriptor `target`.
bool OpenAs(int target, const char* path, int flags) {
  const int fd = ::open(path, flags, 0666);
  if (fd < 0) return false;
  // dup2() onto itself changes nothing and leaves no other descriptor to close
  if (fd == target) return true;
  const bool is_ok = ::dup2(fd, target) >= 0;
  ::close(fd);
  return is_ok;
}

// Everything the child needs, made before fork(): between fork() and exec only
// async-signal-safe calls are allowed.
struct ChildPlan {
  std::vector<std::string> command;
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::string folder;
  std::string stdout_file;
  std::string stderr_file;
  int stdin_fd = -1;
  cpu_set_t cpus;
  bool has_cpus = false;
  int niceness_levels = 0;
};

ChildPlan MakePlan(const ProcessOptions& options) {
  ChildPlan plan;
  plan.command = options.command;
  plan.environment = MergeEnvironment(options.environment);
  plan.argv = PointersTo(plan.command);
  plan.envp = PointersTo(plan.environment);
  plan.stdin_fd = options.stdin_fd;
  plan.folder = options.working_folder.string();
  plan.stdout_file = options.stdout_file.string();
  plan.stderr_file = options.stderr_file.string();
  CPU_ZERO(&plan.cpus);
  for (const int cpu : options.cpus.cpus()) CPU_SET(cpu, &plan.cpus);
  plan.has_cpus = !options.cpus.empty();
  plan.niceness_levels = options.niceness_levels;
  return plan;
}

[[noreturn]] void RunChild(const ChildPlan& plan, pid_t parent, int report_fd) {
  const auto fail = [report_fd](StartCall call) {
    const StartFailure failure{errno, call};
    [[maybe_unused]] const ssize_t written =
        ::write(report_fd, &failure, sizeof(failure));
    ::_exit(127);
  };

  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // the parent may have died before prctl() took effect
  if (::getppid() != parent) ::_exit(127);

  // handlers are reset by exec, blocked and ignored signals are not
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);

  constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
  const bool has_stdin = plan.stdin_fd >= 0
                             ? ::dup2(plan.stdin_fd, STDIN_FILENO) >= 0
                             : OpenAs(STDIN_FILENO, "/dev/null", O_RDONLY);
  if (!has_stdin) fail(kStdin);
  if (!plan.stdout_file.empty() &&
      !OpenAs(STDOUT_FILENO, plan.stdout_file.c_str(), kAppend)) {
    fail(kStdout);
  }
  if (!plan.stderr_file.empty() &&
      !OpenAs(STDERR_FILENO, plan.stderr_file.c_str(), kAppend)) {
    fail(kStderr);
  }
  if (!plan.folder.empty() && ::chdir(plan.folder.c_str()) != 0) fail(kChdir);
  if (plan.has_cpus &&
      ::sched_setaffinity(0, sizeof(plan.cpus), &plan.cpus) != 0) {
    fail(kAffinity);
  }
  // raising the niceness cannot fail; the result is the new niceness
  if (plan.niceness_levels > 0) {
    [[maybe_unused]] const int niceness = ::nice(plan.niceness_levels);
  }
  ::execvpe(plan.argv[0], plan.argv.data(), plan.envp.data());
  fail(kExec);
  ::_exit(127);
}

// The file or program that the failed call was about.
std::string SubjectOf(const StartFailure& failure,
                      const ProcessOptions& options) {
  switch (failure.call) {
    case kStdin:
      return options.stdin_fd < 0
                 ? "/dev/null"
                 : fmt::format("descriptor {}", options.stdin_fd);
    case kStdout:
      return options.stdout_file;
    case kStderr:
      return options.stderr_file;
    case kChdir:
      return options.working_folder;
    case kAffinity:
      return options.cpus.ToString();
    default:
      return options.command[0];
  }
}

void CloseAll(std::initializer_list<int> fds) {
  for (const int fd : fds) ::close(fd);
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal == 0) return fmt::format("exit code {}", code);
  return fmt::format("signal {} ({})", signal, ::strsignal(signal));
}

Process::Process(const ProcessOptions& options) {
  if (options.command.empty() || options.command[0].empty()) {
    throw InvalidArgument("Process: the command is empty");
  }
  const ChildPlan plan = MakePlan(options);
  KeepEndsOfChildren();

  // closed by a successful exec; carries a StartFailure otherwise
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) {
    throw IoError::FromErrno("pipe", options.command[0], errno);
  }
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) RunChild(plan, parent, report[1]);
  if (pid_ < 0) {
    const int error = errno;
    CloseAll({report[0], report[1]});
    throw IoError::FromErrno("fork", options.command[0], error);
  }
  // parent and child both call it, so that Signal() finds the group at once
  ::setpgid(pid_, pid_);
  ::close(report[1]);

  StartFailure failure{};
  ssize_t size;
  do {
    size = ::read(report[0], &failure, sizeof(failure));
  } while (size < 0 && errno == EINTR);
  ::close(report[0]);
  if (size != 0) {
    ::waitpid(pid_, nullptr, 0);
    const IoError error =
        IoError::FromErrno(kStartCalls[failure.call],
                           SubjectOf(failure, options), failure.error_number);
    if (failure.call == kExec) throw ExecuteError(error.what());
    throw error;
  }

  pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd_ < 0) {
    const int error = errno;
    Signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    throw IoError::FromErrno("pidfd_open", options.command[0], error);
  }
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pidfd_(std::exchange(other.pidfd_, -1)),
      status_(std::exchange(other.status_, std::nullopt)) {}

Process::~Process() {
  if (pid_ < 0) return;
  // children of an ended child may still live in the group
  ::kill(-pid_, SIGKILL);
  if (!status_) Wait();
  ::close(pidfd_);
}

std::optional<ExitStatus> Process::Wait(std::chrono::milliseconds timeout) {
  if (status_) return status_;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  pollfd poll_fd{pidfd_, POLLIN, 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    const int wait_ms =
        static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX));
    const int count = ::poll(&poll_fd, 1, wait_ms);
    if (count > 0) return Wait();
    if (count == 0) return std::nullopt;
    REPLICANT_CHECK(errno == EINTR, "poll: {}", std::strerror(errno));
  }
}

ExitStatus Process::Wait() {
  if (status_) return *status_;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0) {
    REPLICANT_CHECK(errno == EINTR, "waitpid: {}", std::strerror(errno));
  }
  status_ = WIFSIGNALED(status) ? ExitStatus{-1, WTERMSIG(status)}
                                : ExitStatus{WEXITSTATUS(status), 0};
  return *status_;
}

void Process::Signal(int signal_number) {
  if (!status_) ::kill(-pid_, signal_number);
}

CommandResult RunCommand(ProcessOptions options,
                         std::chrono::milliseconds timeout) {
  const TemporaryFolder folder("replicant-command");
  const auto output_file = folder.path() / "output";
  options.stdout_file = output_file;
  options.stderr_file = output_file;
  Process process(options);
  const std::optional<ExitStatus> status = process.Wait(timeout);
  const std::string output = ReadFile(output_file);
  if (!status) {
    throw IoError(fmt::format("{}: not finished after {} ms; it printed:\n{}",
                              options.command[0], timeout.count(), output));
  }
  return {*status, output};
}

namespace {

// A signal handler takes no user argument, so this is a global.
std::atomic<int> stop_count{0};
std::atomic<int> stop_fd{-1};
std::atomic<int> first_stop{0};
// Times of the newest counted SIGINT, and of the newest other signal; 0: none.
std::atomic<int64_t> last_interrupt_ns{0};
std::atomic<int64_t> last_termination_ns{0};
// 0: none
std::atomic<pid_t> stop_parent{0};

// A batch system, a service manager or a drained host sends SIGTERM to all
// processes of a run at once. Its launcher alone knows in which order they end.
bool IsForOthers(int signal, pid_t sender) {
  const pid_t parent = stop_parent.load();
  // a sender outside this process's namespace has no number
  return signal != SIGINT && parent != 0 && sender != 0 && sender != parent &&
         sender != ::getpid();
}

// Whether the signal is the one before once more. Slurm sends SIGTERM to a
// job's shell, which passes it on, and to all processes of the job; `timeout -s
// INT` sends to a process and to its group. A user's second Ctrl-C takes
// longer.
bool IsRepeated(int signal) {
  using namespace std::chrono_literals;
  const bool is_interrupt = signal == SIGINT;
  std::atomic<int64_t>& last =
      is_interrupt ? last_interrupt_ns : last_termination_ns;
  const std::chrono::nanoseconds window = is_interrupt ? 300ms : 2s;
  const int64_t now = std::chrono::nanoseconds(
                          std::chrono::steady_clock::now().time_since_epoch())
                          .count();
  int64_t before = last.load();
  do {
    if (before != 0 && now - before < window.count()) return true;
  } while (!last.compare_exchange_weak(before, now));
  return false;
}

void CountStop(int signal, siginfo_t* info, void* /*context*/) {
  if (IsForOthers(signal, info->si_pid) || IsRepeated(signal)) return;
  const int saved_errno = errno;
  int none = 0;
  first_stop.compare_exchange_strong(none, signal);
  stop_count.fetch_add(1);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written =
      ::write(stop_fd.load(), &one, sizeof(one));
  errno = saved_errno;
}

}  // namespace

struct StopSignal::OldHandlers {
  struct sigaction interrupt;
  struct sigaction terminate;
  struct sigaction hang_up;
};

StopSignal::StopSignal() : old_handlers_(std::make_unique<OldHandlers>()) {
  REPLICANT_CHECK(stop_fd.load() < 0, "a second StopSignal");
  stop_count.store(0);
  first_stop.store(0);
  last_interrupt_ns.store(0);
  last_termination_ns.store(0);
  stop_fd.store(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  REPLICANT_CHECK(stop_fd.load() >= 0, "eventfd: {}", std::strerror(errno));

  const char* const parent = std::getenv(kParentVariable);
  stop_parent.store(parent == nullptr ? 0 : std::atoi(parent));
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = &CountStop;
  ::sigemptyset(&action.sa_mask);
  // no SA_RESTART: a blocking call returns EINTR, so its caller can check
  // count()
  ::sigaction(SIGINT, &action, &old_handlers_->interrupt);
  ::sigaction(SIGTERM, &action, &old_handlers_->terminate);
  ::sigaction(SIGHUP, nullptr, &old_handlers_->hang_up);
  if (old_handlers_->hang_up.sa_handler != SIG_IGN) {
    ::sigaction(SIGHUP, &action, nullptr);
  }
  // not restored: the exit of the process writes what stdout still holds
  ::signal(SIGPIPE, SIG_IGN);
}

StopSignal::~StopSignal() {
  ::sigaction(SIGINT, &old_handlers_->interrupt, nullptr);
  ::sigaction(SIGTERM, &old_handlers_->terminate, nullptr);
  ::sigaction(SIGHUP, &old_handlers_->hang_up, nullptr);
  ::close(stop_fd.exchange(-1));
}

int StopSignal::count() const { return stop_count.load(); }

bool StopSignal::is_termination() const {
  return first_stop.load() == SIGTERM || first_stop.load() == SIGHUP;
}

int StopSignal::fd() const { return stop_fd.load(); }

std::string HostAndPid() {
  char host[HOST_NAME_MAX + 1] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0)
    return fmt::format("?/{}", ::getpid());
  return fmt::format("{}/{}", host, ::getpid());
}

}  // namespace replicant
