#include "fleet/terminal_line.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace replicant::fleet {
namespace {

// ECMA-48 EL: erases from the cursor to the end of the line.
constexpr std::string_view kEraseRight = "\x1b[K";
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";  // U+2026

// C0, DEL or C1 (U+0080 to U+009F, which some terminals obey).
bool IsControl(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<uint8_t>(character[1]) < 0xA0;
}

bool IsLive(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && term != nullptr &&
         std::string_view(term) != "dumb" && *term != '\0';
}

int WidthOf(int fd) {
  constexpr int kUsualColumns = 80;
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return kUsualColumns;
  }
  return size.ws_col;
}

void WriteText(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// Forwards to another sink while the line is erased.
class AboveLineSink : public spdlog::sinks::sink {
 public:
  AboveLineSink(spdlog::sink_ptr inner, TerminalLine& line)
      : inner_(std::move(inner)), line_(line) {
    set_level(inner_->level());
  }

  void log(const spdlog::details::log_msg& message) override {
    line_.PrintAbove([&] {
      inner_->log(message);
      inner_->flush();
    });
  }
  void flush() override { inner_->flush(); }
  void set_pattern(const std::string& pattern) override {
    inner_->set_pattern(pattern);
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    inner_->set_formatter(std::move(formatter));
  }

 private:
  const spdlog::sink_ptr inner_;
  TerminalLine& line_;
};

bool IsConsole(const spdlog::sinks::sink& sink) {
  using Mt = spdlog::sinks::ansicolor_sink<spdlog::details::console_mutex>;
  using St = spdlog::sinks::ansicolor_sink<spdlog::details::console_nullmutex>;
  return dynamic_cast<const Mt*>(&sink) != nullptr ||
         dynamic_cast<const St*>(&sink) != nullptr;
}

}  // namespace

std::string FitToColumns(std::string_view text, int columns) {
  if (columns <= 0) return "";
  const std::string valid = ToValidUtf8(text);
  std::string_view rest = valid;
  std::string line;
  // where the last column begins: the ellipsis goes there if more follows
  size_t last_column = 0;
  for (int column = 0; !rest.empty(); ++column) {
    if (column == columns) {
      line.resize(last_column);
      line += kEllipsis;
      break;
    }
    last_column = line.size();
    const std::string_view character = rest.substr(0, Utf8Size(rest));
    line += IsControl(character) ? " " : character;
    rest.remove_prefix(character.size());
  }
  return line;
}

TerminalLine::TerminalLine(int fd) : fd_(fd), is_live_(IsLive(fd)) {}

TerminalLine::~TerminalLine() { Finish(); }

int TerminalLine::columns() const {
  // a character in the last column would make some terminals wrap
  return is_live_ ? WidthOf(fd_) - 1 : std::numeric_limits<int>::max();
}

void TerminalLine::Show(std::string_view text) {
  MutexLock lock(mutex_);
  if (!is_live_) {
    WriteText(fd_, std::string(text) + "\n");
    return;
  }
  text_ = text;
  Paint();
}

void TerminalLine::PrintAbove(const std::function<void()>& print) {
  MutexLock lock(mutex_);
  if (!text_.empty()) WriteText(fd_, "\r" + std::string(kEraseRight));
  print();
  if (!text_.empty()) Paint();
}

void TerminalLine::Finish() {
  MutexLock lock(mutex_);
  if (text_.empty()) return;
  Paint();
  WriteText(fd_, "\n");
  text_.clear();
}

void TerminalLine::Paint() {
  const std::string line = FitToColumns(text_, columns());
  // one write, so that no other program's output comes in between
  WriteText(fd_, "\r" + line + std::string(kEraseRight) + "\r");
}

struct LogAboveLine::Wrapped {
  std::shared_ptr<spdlog::logger> logger;
  std::vector<spdlog::sink_ptr> old_sinks;
};

LogAboveLine::LogAboveLine(TerminalLine& line)
    : wrapped_(std::make_unique<Wrapped>()) {
  wrapped_->logger = spdlog::default_logger();
  std::vector<spdlog::sink_ptr>& sinks = wrapped_->logger->sinks();
  wrapped_->old_sinks = sinks;
  if (!line.is_live()) return;
  for (spdlog::sink_ptr& sink : sinks) {
    if (IsConsole(*sink)) sink = std::make_shared<AboveLineSink>(sink, line);
  }
}

LogAboveLine::~LogAboveLine() {
  wrapped_->logger->sinks() = wrapped_->old_sinks;
}

}  // namespace replicant::fleet
