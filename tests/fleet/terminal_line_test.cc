#include "fleet/terminal_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/fs.h"
#include "tests/fleet/fake_terminal.h"

namespace replicant::fleet {
namespace {

using ::testing::ElementsAre;

TEST(FitToColumnsTest, WhatDoesNotFitIsCutWithAnEllipsis) {
  EXPECT_EQ(FitToColumns("steps", 5), "steps");
  EXPECT_EQ(FitToColumns("steps", 4), "ste…");
  EXPECT_EQ(FitToColumns("éééé", 3), "éé…");
  EXPECT_EQ(FitToColumns("ab", 1), "…");
  EXPECT_EQ(FitToColumns("ab", 0), "");
  EXPECT_EQ(FitToColumns("", 3), "");
}

// A line that moved the cursor would write over what is above it.
TEST(FitToColumnsTest, ControlCharactersBecomeSpaces) {
  EXPECT_EQ(FitToColumns("a\nb\x1B[2Jc\x7F\xC2\x9B", 20), "a b [2Jc  ");
}

// Would catch what a longer text leaves behind a shorter one.
TEST(TerminalLineTest, ATextReplacesTheOneBefore) {
  FakeTerminal terminal(20);
  TerminalLine line(terminal.fd());
  EXPECT_TRUE(line.is_live());
  line.Show("step 1000");
  EXPECT_THAT(terminal.Screen(), ElementsAre("step 1000", "0"));
  line.Show("step 1");
  EXPECT_THAT(terminal.Screen(), ElementsAre("step 1", "0"));
}

// Would catch a line that wraps, after which no rewriting in place works.
TEST(TerminalLineTest, TheTextIsCutToTheWidthOfTheMoment) {
  FakeTerminal terminal(8);
  TerminalLine line(terminal.fd());
  line.Show("0123456789");
  EXPECT_THAT(terminal.Screen(), ElementsAre("012345…", "0"));
  terminal.Resize(10);
  line.Show("0123456789");
  EXPECT_THAT(terminal.Screen(), ElementsAre("01234567…", "0"));
  terminal.Resize(1);
  line.Show("0123456789");
  EXPECT_THAT(terminal.Screen(), ElementsAre("", "0"));
}

TEST(TerminalLineTest, PrintedLinesStandAboveTheLine) {
  FakeTerminal terminal(40);
  TerminalLine line(terminal.fd());
  const auto print = [&](const std::string& text) {
    line.PrintAbove([&] {
      ASSERT_EQ(::write(terminal.fd(), text.data(), text.size()),
                static_cast<ssize_t>(text.size()));
    });
  };
  print("first\n");
  line.Show("a long progress line");
  print("second\n");
  print("third\n");
  EXPECT_THAT(terminal.Screen(), ElementsAre("first", "second", "third",
                                             "a long progress line", "0"));
}

// A shell's next output must stand on a separate line.
TEST(TerminalLineTest, TheEndLeavesTheTextAndTheCursorBelow) {
  FakeTerminal terminal(40);
  {
    TerminalLine line(terminal.fd());
    line.Show("step 7");
  }
  EXPECT_THAT(terminal.Screen(), ElementsAre("step 7", "", "0"));
  { TerminalLine line(terminal.fd()); }
  EXPECT_THAT(terminal.Screen(), ElementsAre("step 7", "", "0"))
      << "a line that showed nothing";
}

TEST(TerminalLineTest, ATerminalThatCannotEraseGetsPlainLines) {
  FakeTerminal terminal(4);
  ::setenv("TERM", "dumb", 1);
  TerminalLine line(terminal.fd());
  EXPECT_FALSE(line.is_live());
  line.Show("step 1");
  line.Show("step 2");
  EXPECT_THAT(terminal.Screen(), ElementsAre("step 1", "step 2", "", "0"));
}

TEST(TerminalLineTest, AClosedTerminalIsIgnored) {
  TerminalLine line(/*fd=*/-1);
  EXPECT_FALSE(line.is_live());
  line.Show("step 1");
}

// The logger's console sink writes to the same terminal, as spdlog does it.
TEST(LogAboveLineTest, LogLinesStandAboveTheLineWhileItLives) {
  FakeTerminal terminal(40);
  std::FILE* stream = ::fdopen(::dup(terminal.fd()), "w");
  const auto old_logger = spdlog::default_logger();
  using Sink = spdlog::sinks::ansicolor_sink<spdlog::details::console_mutex>;
  const auto sink = std::make_shared<Sink>(stream, spdlog::color_mode::never);
  const auto logger = std::make_shared<spdlog::logger>("test", sink);
  logger->set_pattern("%v");
  spdlog::set_default_logger(logger);
  {
    TerminalLine line(terminal.fd());
    const LogAboveLine log_above_line(line);
    line.Show("a long progress line");
    spdlog::info("short");
    EXPECT_THAT(terminal.Screen(),
                ElementsAre("short", "a long progress line", "0"));
    // would catch a pattern that stays with the wrapping sink
    logger->set_pattern("%L %v");
    spdlog::warn("two");
    EXPECT_THAT(terminal.Screen(),
                ElementsAre("short", "W two", "a long progress line", "0"));
  }
  EXPECT_THAT(logger->sinks(), ElementsAre(sink));
  spdlog::set_default_logger(old_logger);
  std::fclose(stream);
}

}  // namespace
}  // namespace replicant::fleet
