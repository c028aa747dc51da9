#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace replicant::testing {

// Keeps the messages that are logged while it lives, from warnings up or from
// another level.
//
// Thread-safety: make and destroy it while no other thread logs.
class LogLines {
 public:
  explicit LogLines(spdlog::level::level_enum level = spdlog::level::warn)
      : sink_(std::make_shared<Sink>()) {
    sink_->set_level(level);
    spdlog::default_logger()->sinks().push_back(sink_);
  }
  ~LogLines() { spdlog::default_logger()->sinks().pop_back(); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  std::vector<std::string> lines() const { return sink_->Lines(); }

 private:
  class Sink : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::vector<std::string> Lines() {
      const std::lock_guard<std::mutex> lock(mutex_);
      return lines_;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      lines_.emplace_back(message.payload.data(), message.payload.size());
    }
    void flush_() override {}

    std::vector<std::string> lines_;
  };

  const std::shared_ptr<Sink> sink_;
};

}  // namespace replicant::testing
