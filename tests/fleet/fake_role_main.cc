// A role that does what its arguments say, one after another:
//
//   N:STEP          only in incarnation N
//   run             says that it runs
//   wait=REASON     says that it waits
//   count=N         sets its counter `steps`
//   print=TEXT      writes a line to its log
//   await=FILE      sleeps until there is such a file in FOLDER
//   until-stop      sleeps until it is asked to stop, then says that it drains
//   silent          sends no heartbeat any more
//   ignore-stop     is never asked to stop from here on
//   crash           ends by SIGABRT
//   exit=N          ends
//
// It writes its process id to FOLDER/pids, where FOLDER is its first argument,
// when it starts, and its name to FOLDER/ends when it ends.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/process.h"
#include "fleet/protocol/heartbeat_sender.h"

namespace replicant::fleet {
namespace {

// One write, so that lines of several processes stay whole.
void AppendLine(const std::string& file, const std::string& line) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  const std::string text = line + "\n";
  if (fd < 0 || ::write(fd, text.data(), text.size()) < 0) std::_Exit(90);
  ::close(fd);
}

class FakeRole {
 public:
  explicit FakeRole(std::string folder)
      : folder_(std::move(folder)),
        options_(HeartbeatSenderOptions::FromEnvironment(
            {.interval = std::chrono::milliseconds(50)})) {
    AppendLine(folder_ + "/pids", std::to_string(::getpid()));
    sender_.emplace(options_);
  }

  void Do(std::string step) {
    // "2:crash"
    if (step[0] >= '1' && step[0] <= '9') {
      if (std::stoul(step) != options_.incarnation) return;
      step = step.substr(step.find(':') + 1);
    }
    const size_t equals = step.find('=');
    const std::string name = step.substr(0, equals);
    const std::string value =
        equals == std::string::npos ? "" : step.substr(equals + 1);
    if (name == "run") sender_->SetState(RoleState::kRunning);
    if (name == "wait") sender_->SetState(RoleState::kWaiting, value);
    if (name == "count") sender_->SetCounter("steps", std::stod(value));
    if (name == "print") std::printf("%s\n", value.c_str());
    if (name == "await") Await(folder_ + "/" + value);
    if (name == "until-stop") UntilStop();
    if (name == "silent") sender_.reset();
    if (name == "ignore-stop") ignores_stop_ = true;
    if (name == "crash") std::abort();
    if (name == "exit") End(std::stoi(value));
    std::fflush(stdout);
  }

  [[noreturn]] void End(int code) {
    sender_.reset();
    AppendLine(folder_ + "/ends", options_.id.ToString());
    std::_Exit(code);
  }

 private:
  static void Sleep() { ::poll(nullptr, 0, /*timeout_ms=*/10); }
  static void Await(const std::string& file) {
    while (!std::filesystem::exists(file)) Sleep();
  }
  void UntilStop() {
    while (ignores_stop_ || stop_.count() == 0) Sleep();
    if (sender_) sender_->SetState(RoleState::kDraining);
  }

  const std::string folder_;
  const HeartbeatSenderOptions options_;
  const StopSignal stop_;
  bool ignores_stop_ = false;
  std::optional<HeartbeatSender> sender_;
};

}  // namespace
}  // namespace replicant::fleet

int main(int argc, char** argv) {
  if (argc < 2) return 91;
  replicant::fleet::FakeRole role(argv[1]);
  for (int i = 2; i < argc; ++i) role.Do(argv[i]);
  role.End(0);
}
