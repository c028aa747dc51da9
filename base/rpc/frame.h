#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace replicant::rpc {

// One part of a message: a block of bytes that moves and is sent without a
// copy. It hides the vendor's message type, which counts references.
//
// bytes() stays valid until the frame is moved, sent or destroyed: a block of
// a few bytes lies inside the frame itself.
//
// Thread-safety: one thread at a time. A shared frame may live in another
// thread than the one it was made from.
class Frame {
 public:
  // An empty frame.
  Frame() noexcept;
  // Bytes to be filled in through mutable_bytes(); not initialised.
  // Throws CommError if there is no memory.
  explicit Frame(size_t size_bytes);
  ~Frame();
  Frame(Frame&& other) noexcept;
  Frame& operator=(Frame&& other) noexcept;

  static Frame Copy(std::span<const std::byte> bytes);
  static Frame Copy(std::string_view text);
  // Takes the vector over; nothing is copied.
  static Frame Own(std::vector<std::byte> bytes);
  // Lends `bytes`, which must stay unchanged until `release` is called. The
  // call comes once, after the last frame that shares the bytes is gone, on an
  // I/O thread of the context or on the thread that drops the frame. `release`
  // must be quick and must not throw.
  static Frame Borrow(std::span<const std::byte> bytes,
                      std::function<void()> release);

  // A second frame of the same bytes. Neither may be written from then on.
  Frame Share();

  size_t size() const;
  std::span<const std::byte> bytes() const;
  std::string_view text() const;
  // Only for a frame that was never shared, sent or received.
  std::span<std::byte> mutable_bytes();

 private:
  friend class ZmqSocket;

  // a zmq_msg_t; its size and alignment are asserted in the source file
  alignas(void*) mutable std::byte storage_[64];
};

// The parts of one message, sent and received together.
using Message = std::vector<Frame>;

// A message of the same bytes; nothing is copied.
Message Share(Message& message);

// A message of one part.
Message MakeMessage(Frame frame);

// Sum of the sizes of the parts.
size_t SizeBytes(std::span<const Frame> frames);

}  // namespace replicant::rpc
