#include "base/rpc/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace replicant::rpc {
namespace {

TEST(FrameTest, CopyHoldsItsOwnBytes) {
  std::string text = "transition";
  const Frame frame = Frame::Copy(text);
  text.clear();
  EXPECT_EQ(frame.text(), "transition");
  EXPECT_EQ(Frame().size(), 0u);
  EXPECT_EQ(Frame::Copy("").size(), 0u);
}

// Catches a copy on the way: the bytes must be the very ones that were lent.
TEST(FrameTest, BorrowAndOwnDoNotCopy) {
  std::vector<std::byte> bytes(100, std::byte{7});
  const std::byte* data = bytes.data();
  const Frame borrowed = Frame::Borrow(bytes, [] {});
  EXPECT_EQ(borrowed.bytes().data(), data);
  const Frame owned = Frame::Own(std::move(bytes));
  EXPECT_EQ(owned.bytes().data(), data);
  EXPECT_EQ(owned.size(), 100u);
}

// Catches a release that comes early, twice or never.
TEST(FrameTest, BorrowedBytesAreReleasedOnceAfterTheLastShare) {
  const std::array<std::byte, 64> bytes{};
  int releases = 0;
  {
    Frame first = Frame::Borrow(bytes, [&releases] { ++releases; });
    {
      Frame second = first.Share();
      EXPECT_EQ(second.bytes().data(), bytes.data());
      first = Frame();
      EXPECT_EQ(releases, 0);
    }
    EXPECT_EQ(releases, 1);
  }
  EXPECT_EQ(releases, 1);
}

TEST(FrameTest, MovedFromFrameIsEmpty) {
  Frame first = Frame::Copy("a text that is too long for the frame itself");
  Frame second = std::move(first);
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-*): the claim itself
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(second.text(), "a text that is too long for the frame itself");
}

TEST(FrameTest, FreshFrameIsFilledInPlace) {
  Frame frame(3);
  frame.mutable_bytes()[2] = std::byte{'c'};
  EXPECT_EQ(frame.text()[2], 'c');
}

TEST(FrameTest, SharedMessageHasTheSameBytes) {
  Message message = MakeMessage(Frame::Own(std::vector<std::byte>(1000)));
  const Message shared = Share(message);
  EXPECT_EQ(shared[0].bytes().data(), message[0].bytes().data());
  EXPECT_EQ(SizeBytes(shared), 1000u);
}

}  // namespace
}  // namespace replicant::rpc
