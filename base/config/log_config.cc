#include "base/config/log_config.h"

namespace replicant::config {

LogOptions ReadLogOptions(Reader& parent) {
  LogOptions options;
  Reader reader = parent.Section("log", "log of each process");
  reader.Field("level", &options.level,
               {{"trace", LogLevel::kTrace},
                {"debug", LogLevel::kDebug},
                {"info", LogLevel::kInfo},
                {"warning", LogLevel::kWarning},
                {"error", LogLevel::kError},
                {"off", LogLevel::kOff}},
               "least severe level that is written");
  reader.Field("file", &options.file,
               "file to append to, in a folder that exists; empty: none");
  reader.Field("console", &options.console,
               "whether the log is written to stderr");
  return options;
}

}  // namespace replicant::config
