#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <memory>
#include <vector>

#include "base/error.h"

namespace replicant {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

}  // namespace

void InitLogging(const LogOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (options.console) {
    sinks.push_back(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  }
  if (!options.file.empty()) {
    try {
      sinks.push_back(
          std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    } catch (const spdlog::spdlog_ex& e) {
      throw IoError(fmt::format("log file: {}", e.what()));
    }
  }

  auto logger = std::make_shared<spdlog::logger>(options.role, sinks.begin(),
                                                 sinks.end());
  // %L level letter, %n role, %P process id; colour only on a terminal
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%L%$ %n/%P %v");
  logger->set_level(ToSpdlog(options.level));
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
  spdlog::flush_every(std::chrono::seconds(1));
}

}  // namespace replicant
