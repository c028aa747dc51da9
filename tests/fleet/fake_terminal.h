#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"

namespace replicant::fleet {

// A pseudo-terminal with a model of its screen: printable ASCII and UTF-8, \r,
// \n and "erase to the end of the line", one string a row. Anything else that
// a program sends is a failure.
class FakeTerminal {
 public:
  explicit FakeTerminal(int columns) {
    ::setenv("TERM", "xterm", /*overwrite=*/1);
    REPLICANT_CHECK(
        ::openpty(&controller_, &terminal_, nullptr, nullptr, nullptr) == 0,
        "openpty");
    Resize(columns);
  }
  ~FakeTerminal() {
    ::close(terminal_);
    ::close(controller_);
  }
  FakeTerminal(const FakeTerminal&) = delete;
  FakeTerminal& operator=(const FakeTerminal&) = delete;

  // The end that a program writes to.
  int fd() const { return terminal_; }

  void Resize(int columns) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = static_cast<uint16_t>(columns);
    ::ioctl(controller_, TIOCSWINSZ, &size);
  }

  // The rows from the top to the cursor's; the cursor's column follows as a
  // number: {"a log line", "the line", "0"}.
  std::vector<std::string> Screen() {
    for (const std::string& character : Receive()) Draw(character);
    std::vector<std::string> screen;
    for (const std::vector<std::string>& row : rows_) {
      screen.emplace_back();
      for (const std::string& character : row) screen.back() += character;
    }
    screen.push_back(std::to_string(column_));
    return screen;
  }

 private:
  // The characters and escape sequences written so far.
  std::vector<std::string> Receive() {
    std::vector<std::string> characters;
    pollfd ready{controller_, POLLIN, 0};
    char byte;
    bool is_escape = false;
    while (::poll(&ready, 1, 0) == 1 && ::read(controller_, &byte, 1) == 1) {
      const bool is_continuation = (byte & 0xC0) == 0x80;
      if (is_escape || is_continuation) {
        characters.back() += byte;
        // a letter ends a sequence
        if (byte >= 'A' && byte != '[') is_escape = false;
      } else {
        characters.emplace_back(1, byte);
        is_escape = byte == '\x1b';
      }
    }
    return characters;
  }

  void Draw(const std::string& character) {
    std::vector<std::string>& row = rows_.back();
    if (character == "\r") {
      column_ = 0;
    } else if (character == "\n") {
      rows_.emplace_back();
    } else if (character == "\x1b[K") {
      if (row.size() > column_) row.resize(column_);
    } else {
      REPLICANT_CHECK(static_cast<unsigned char>(character[0]) >= ' ',
                      "a sequence that the model does not know");
      if (row.size() <= column_) row.resize(column_ + 1, " ");
      row[column_++] = character;
    }
  }

  int controller_ = -1;
  int terminal_ = -1;
  std::vector<std::vector<std::string>> rows_{1};
  size_t column_ = 0;
};

}  // namespace replicant::fleet
