#include "core/config/log_config.h"

namespace replicant::config {

LogOptions ReadLogOptions(Reader& parent) {
  LogOptions options;
  Reader reader = parent.Section("log", "what a process writes to its log");
  reader.Field("level", &options.level,
               {{"trace", LogLevel::kTrace},
                {"debug", LogLevel::kDebug},
                {"info", LogLevel::kInfo},
                {"warning", LogLevel::kWarning},
                {"error", LogLevel::kError},
                {"off", LogLevel::kOff}},
               "the least severe lines that are written");
  reader.Field("file", &options.file,
               "file the lines are appended to, in a folder that exists; empty "
               "for none");
  reader.Field("console", &options.console,
               "whether lines are written to stderr");
  return options;
}

}  // namespace replicant::config
