#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread.h"

namespace replicant {

// Exit code of a program that cannot run with its configuration: EX_CONFIG of
// sysexits.h. Starting it again does not help. A role that ends with it before
// it has run ends its fleet's run at once.
inline constexpr int kExitConfig = 78;
// Exit code of a program whose device is missing or failed: EX_UNAVAILABLE of
// sysexits.h. Starting it again helps on another host only. A role that ends
// with it before it has run ends its fleet's run at once, too.
inline constexpr int kExitDevice = 69;
// Exit code of a process that ends because its group has lost another one:
// EX_TEMPFAIL of sysexits.h.
inline constexpr int kExitPeerLost = 75;

// How a process ended.
struct ExitStatus {
  // exit code; -1 if a signal ended it
  int code = 0;
  // signal number, or 0
  int signal = 0;

  bool ok() const { return code == 0; }
  // "exit code 3", "signal 9 (Killed)".
  std::string ToString() const;
  bool operator==(const ExitStatus&) const = default;
};

// A program that cannot be executed: there is none, say.
class ExecuteError : public IoError {
 public:
  using IoError::IoError;
};

struct ProcessOptions {
  // Program and arguments; a program without '/' is looked up on PATH.
  std::vector<std::string> command;
  // "NAME=value", added to (or replacing in) this process's environment.
  std::vector<std::string> environment;
  // Descriptor that becomes the child's standard input, which stays the
  // caller's to close; -1: an empty input.
  int stdin_fd = -1;
  std::filesystem::path working_folder;  // empty: this process's
  // Files that stdout and stderr are appended to; empty: this process's own.
  // Both may name one file.
  std::filesystem::path stdout_file;
  std::filesystem::path stderr_file;
  // Processors the child may run on; empty: this thread's.
  CpuSet cpus;
  // Levels added to the child's niceness (base/priority.h).
  int niceness_levels = 0;
};

// A child process that never outlives its parent.
//
// The child leads a separate process group, so that a Ctrl-C on the terminal
// reaches only the parent and Signal() reaches the child's children. The kernel
// kills it when the thread that started it dies, so start children from a
// thread that lives as long as they should (main()). The destructor kills the
// whole group and waits. An ignored SIGCHLD of this process gets its default
// action back: the kernel would forget how a child ended.
//
// Thread-safety: one thread at a time.
class Process {
 public:
  // Starts the command. Throws IoError if the program cannot be executed or a
  // file cannot be opened; nothing runs then.
  explicit Process(const ProcessOptions& options);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) = delete;

  pid_t pid() const { return pid_; }
  // Readable when the child has ended: for poll() over many children.
  int pidfd() const { return pidfd_; }

  // Waits for the end; std::nullopt if it has not come after `timeout`.
  std::optional<ExitStatus> Wait(std::chrono::milliseconds timeout);
  // Waits for the end, however long it takes.
  ExitStatus Wait();

  // Sends a signal to the child and its group; no effect once it has ended.
  void Signal(int signal_number);

 private:
  pid_t pid_ = -1;
  int pidfd_ = -1;
  std::optional<ExitStatus> status_;
};

// Runs a command to its end and returns what it wrote to stdout and stderr,
// in one string. Throws as Process does, and IoError after `timeout`.
struct CommandResult {
  ExitStatus status;
  std::string output;
};
CommandResult RunCommand(ProcessOptions options,
                         std::chrono::milliseconds timeout);

// Counts SIGINT, SIGTERM and SIGHUP instead of ending the process. The first
// one asks for a clean stop, the second one for an immediate end. A SIGHUP that
// the process ignores, as under nohup, stays ignored. Two SIGINT within 0.3 s
// count as one, and so do two of the others within 2 s: systems send a signal
// to a process by several ways. In a process that a
// Process has started, and in its children, a SIGTERM or SIGHUP of anybody but
// the starter has no effect: it may have gone to all processes of a job, and
// the starter knows in which order they end.
//
//   StopSignal stop;
//   while (stop.count() == 0) Step();
//
// At most one lives at a time (checked). Its destructor restores the handlers.
// SIGPIPE is ignored for good, since a process outlives the readers of its
// output.
// Thread-safety: count() and fd() are for any thread.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Signals counted so far.
  int count() const;
  // Whether the first one was SIGTERM or SIGHUP, which a system sends to end a
  // process or closes its terminal with; a person's Ctrl-C sends SIGINT.
  bool is_termination() const;
  // Readable once count() > 0: for poll().
  int fd() const;

 private:
  struct OldHandlers;
  std::unique_ptr<OldHandlers> old_handlers_;
};

// The host's name and this process's id, for messages: "host12/4711".
std::string HostAndPid();

}  // namespace replicant
