#include "base/rpc/frame.h"

#include <cstring>
#include <memory>
#include <utility>

#include "base/rpc/zmq_call.h"

namespace replicant::rpc {
namespace {

zmq_msg_t* Msg(std::byte* storage) {
  return reinterpret_cast<zmq_msg_t*>(storage);
}

// The release callback of a borrowed frame.
struct Release {
  std::function<void()> call;
};

void CallRelease(void* /*data*/, void* hint) {
  const std::unique_ptr<Release> release(static_cast<Release*>(hint));
  if (release->call) release->call();
}

}  // namespace

Frame::Frame() noexcept {
  static_assert(sizeof(zmq_msg_t) == sizeof(storage_));
  static_assert(alignof(zmq_msg_t) <= alignof(void*));
  zmq_msg_init(Msg(storage_));
}

Frame::Frame(size_t size_bytes) {
  ZMQ_CALL(zmq_msg_init_size(Msg(storage_), size_bytes));
}

Frame::~Frame() { zmq_msg_close(Msg(storage_)); }

Frame::Frame(Frame&& other) noexcept : Frame() {
  zmq_msg_move(Msg(storage_), Msg(other.storage_));
}

Frame& Frame::operator=(Frame&& other) noexcept {
  if (this != &other) zmq_msg_move(Msg(storage_), Msg(other.storage_));
  return *this;
}

Frame Frame::Copy(std::span<const std::byte> bytes) {
  Frame frame(bytes.size());
  if (!bytes.empty()) {
    std::memcpy(frame.mutable_bytes().data(), bytes.data(), bytes.size());
  }
  return frame;
}

Frame Frame::Copy(std::string_view text) {
  return Copy(std::as_bytes(std::span(text)));
}

Frame Frame::Own(std::vector<std::byte> bytes) {
  auto owned = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> view(*owned);
  return Borrow(view, [owned] {});
}

Frame Frame::Borrow(std::span<const std::byte> bytes,
                    std::function<void()> release) {
  auto hint = std::make_unique<Release>(Release{std::move(release)});
  Frame frame;
  // the library takes a pointer to non-const but only reads the bytes
  ZMQ_CALL(zmq_msg_init_data(Msg(frame.storage_),
                             const_cast<std::byte*>(bytes.data()), bytes.size(),
                             &CallRelease, hint.get()));
  // from here on the library owns it
  static_cast<void>(hint.release());
  return frame;
}

Frame Frame::Share() {
  Frame frame;
  ZMQ_CALL(zmq_msg_copy(Msg(frame.storage_), Msg(storage_)));
  return frame;
}

size_t Frame::size() const { return zmq_msg_size(Msg(storage_)); }

std::span<const std::byte> Frame::bytes() const {
  return {static_cast<const std::byte*>(zmq_msg_data(Msg(storage_))), size()};
}

std::string_view Frame::text() const {
  return {static_cast<const char*>(zmq_msg_data(Msg(storage_))), size()};
}

std::span<std::byte> Frame::mutable_bytes() {
  return {static_cast<std::byte*>(zmq_msg_data(Msg(storage_))), size()};
}

Message Share(Message& message) {
  Message shared;
  shared.reserve(message.size());
  for (Frame& frame : message) shared.push_back(frame.Share());
  return shared;
}

Message MakeMessage(Frame frame) {
  Message message;
  message.push_back(std::move(frame));
  return message;
}

size_t SizeBytes(std::span<const Frame> frames) {
  size_t size_bytes = 0;
  for (const Frame& frame : frames) size_bytes += frame.size();
  return size_bytes;
}

}  // namespace replicant::rpc
