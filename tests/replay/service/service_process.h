#pragma once

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "base/rpc/client.h"
#include "replay/format/protocol.h"
#include "tests/support/own_address.h"

namespace replicant::replay::testing {

inline std::string ContentsOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The program `replay` on a port of this host, which stays the same when it is
// started again.
class ServiceProcess {
 public:
  // `settings` are lines of the section `replay`, indented by two.
  ServiceProcess(std::filesystem::path program, std::filesystem::path folder,
                 const std::string& settings)
      : program_(std::move(program)), folder_(std::move(folder)) {
    std::ofstream(folder_ / "run.yaml") << "replay:\n" << settings;
  }

  // Starts it and waits until it listens; with options after the config.
  // `wrapper` stands before the command. Throws Error if it ends instead.
  void Start(const std::vector<std::string>& options = {},
             const std::vector<std::string>& wrapper = {}) {
    log_ = folder_ / ("service-" + std::to_string(++num_starts_) + ".log");
    std::vector<std::string> command = wrapper;
    command.insert(
        command.end(),
        {program_.string(), "--config", (folder_ / "run.yaml").string(),
         "--set",
         "replay.bind=" + (endpoint_.empty() ? replicant::testing::OwnAddress()
                                             : endpoint_)});
    command.insert(command.end(), options.begin(), options.end());
    process_ = std::make_unique<Process>(
        ProcessOptions{.command = command, .stderr_file = log_});
    const std::string key = "listening at ";
    const auto give_up = Clock::Real().Now() + std::chrono::seconds(60);
    while (Clock::Real().Now() < give_up) {
      const std::string text = log();
      const size_t begin = text.find(key);
      const size_t end = text.find('\n', begin);
      if (begin != std::string::npos && end != std::string::npos) {
        endpoint_ = text.substr(begin + key.size(), end - begin - key.size());
        return;
      }
      // the file grows until then
      if (process_->Wait(std::chrono::milliseconds(5)).has_value()) break;
    }
    throw Error("the service does not listen: " + log());
  }

  void Signal(int signal) { process_->Signal(signal); }
  // SIGKILL, or SIGTERM and a clean end.
  void Kill() {
    process_->Signal(SIGKILL);
    process_->Wait();
  }
  ExitStatus Stop() {
    process_->Signal(SIGTERM);
    return process_->Wait(std::chrono::seconds(60))
        .value_or(ExitStatus{.code = -2});
  }

  nlohmann::json Status() {
    if (!client_.has_value()) {
      client_.emplace(context_, ReplayProtocol(),
                      rpc::ClientOptions{.name = "test"});
      client_->Connect(endpoint_);
    }
    const rpc::CallReply reply = client_->Call(
        kStatusKind, {},
        {.timeout = std::chrono::seconds(60), .is_idempotent = true});
    return nlohmann::json::parse(
        rpc::DecodeMessage<StatusReply>(reply.payload).json);
  }
  // The same until `is_reached` says yes, or a minute.
  template <typename Predicate>
  nlohmann::json AwaitStatus(const Predicate& is_reached) {
    const auto give_up = Clock::Real().Now() + std::chrono::seconds(60);
    nlohmann::json status = Status();
    while (!is_reached(status) && Clock::Real().Now() < give_up) {
      status = Status();
    }
    return status;
  }

  const std::string& endpoint() const { return endpoint_; }
  // The process of the last start.
  std::string log() const { return ContentsOf(log_); }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  const std::filesystem::path program_, folder_;
  std::filesystem::path log_;
  std::string endpoint_;
  int num_starts_ = 0;
  std::unique_ptr<Process> process_;
  rpc::ZmqContext context_;
  std::optional<rpc::Client> client_;  // one, so that it is one peer
};

}  // namespace replicant::replay::testing
