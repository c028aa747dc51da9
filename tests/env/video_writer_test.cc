#include "env/video_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

bool HasFfmpeg() {
  return std::system("command -v ffmpeg > /dev/null") == 0;  // NOLINT
}

TEST(VideoWriterTest, WritesAFileWhoseFramesComeBack) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg is not installed";
  const TemporaryFolder folder;
  // a name that ffmpeg could take for a protocol
  const auto file = folder.path() / "a:b.mp4";
  VideoWriter writer(file, /*height=*/32, /*width=*/48, 25.0);
  constexpr size_t kBytes = size_t{32} * 48 * 3;
  for (const int grey : {20, 120, 220}) {
    writer.Write(std::vector<uint8_t>(kBytes, static_cast<uint8_t>(grey)));
  }
  writer.Finish();
  const CommandResult decoded =
      RunCommand({.command = {"ffmpeg", "-loglevel", "error", "-i",
                              "file:" + file.string(), "-f", "rawvideo",
                              "-pix_fmt", "rgb24", "-"}},
                 std::chrono::seconds(50));
  ASSERT_EQ(decoded.output.size(), 3 * kBytes);
  // lossy, but not by much
  EXPECT_NEAR(static_cast<uint8_t>(decoded.output[100]), 20, 4);
  EXPECT_NEAR(static_cast<uint8_t>(decoded.output[kBytes + 100]), 120, 4);
  EXPECT_NEAR(static_cast<uint8_t>(decoded.output[2 * kBytes + 100]), 220, 4);
}

TEST(VideoWriterTest, PassesOnWhatFfmpegSays) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg is not installed";
  const TemporaryFolder folder;
  const auto file = folder.path() / "missing" / "out.mp4";
  const std::string message = MessageOf<IoError>([&] {
    VideoWriter writer(file, 64, 64, 25.0);
    // until the pipe is full, or ffmpeg is gone
    for (int i = 0; i < 1000; ++i) {
      writer.Write(std::vector<uint8_t>(size_t{64} * 64 * 3));
    }
    writer.Finish();
  });
  // code and words differ by version
  EXPECT_THAT(message, AllOf(StartsWith("video " + file.string() +
                                        ": ffmpeg ended with exit code "),
                             HasSubstr("file:" + file.string()),
                             HasSubstr(": No such file or directory")));
}

// Would catch an evaluator that a hung ffmpeg holds up for ever.
TEST(VideoWriterTest, AnFfmpegThatHangsIsKilled) {
  const TemporaryFolder folder;
  AtomicWriteFile(folder.path() / "ffmpeg", "#!/bin/sh\nexec sleep 1000\n",
                  /*mode=*/0755);
  const std::string path = std::getenv("PATH");  // NOLINT
  ::setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
  const auto file = folder.path() / "a.mp4";
  const std::chrono::milliseconds patience(50);
  VideoWriter full(file, 64, 64, 25.0, patience);
  EXPECT_EQ(MessageOf<IoError>([&] {
              while (true) {
                full.Write(std::vector<uint8_t>(size_t{64} * 64 * 3));
              }
            }),
            "video " + file.string() +
                ": ffmpeg has taken no frame for 0.05 s and was killed");
  VideoWriter ended(file, 2, 2, 25.0, patience);
  EXPECT_EQ(MessageOf<IoError>([&] { ended.Finish(); }),
            "video " + file.string() +
                ": ffmpeg has not ended for 0.05 s and was killed");
  ::setenv("PATH", path.c_str(), /*overwrite=*/1);
}

TEST(VideoWriterTest, RefusesWrongSizesAndAMissingFfmpeg) {
  EXPECT_EQ(
      MessageOf<InvalidArgument>([] { VideoWriter("a.mp4", 0, 4, 25.0); }),
      "video a.mp4: 0 x 4 pixels at 25 frames per second given; all must be > "
      "0");
  if (HasFfmpeg()) {
    const TemporaryFolder folder;
    const auto file = folder.path() / "a.mp4";
    VideoWriter writer(file, 2, 2, 25.0);
    EXPECT_EQ(MessageOf<InvalidArgument>(
                  [&] { writer.Write(std::vector<uint8_t>(11)); }),
              "video " + file.string() + ": frame has 11 bytes, expected 12");
  }
  const std::string path = std::getenv("PATH");  // NOLINT
  ::setenv("PATH", "/nowhere", /*overwrite=*/1);
  EXPECT_EQ(MessageOf<IoError>([] { VideoWriter("a.mp4", 2, 2, 25.0); }),
            "video a.mp4: execute: ffmpeg: No such file or directory; hint: "
            "install the program ffmpeg, which writes videos");
  ::setenv("PATH", path.c_str(), /*overwrite=*/1);
}

}  // namespace
}  // namespace replicant::env
