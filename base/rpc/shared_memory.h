#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace replicant::rpc {

// Locates a block for another process of this host; sent in a message.
struct SharedMemoryHandle {
  uint64_t token[2] = {};   // random; proves that both mean the same block
  uint64_t size_bytes = 0;  // of SharedMemory::bytes()
  uint32_t pid = 0;
  uint32_t fd = 0;

  bool operator==(const SharedMemoryHandle&) const = default;
};

// A block of memory that processes of one host share. It is an unnamed memory
// file (memfd), so nothing of it remains after the processes end, however they
// end. One process creates it and sends its handle; another opens it through
// /proc/PID/fd/FD. The token in front of the block proves that both are on the
// same host: elsewhere the path leads nowhere, or to a file without the token.
//
// The block is allocated in full at creation and sealed against growing and
// shrinking, so no access raises SIGBUS, whatever the other side does. A
// message orders the writes to the block: each side reads only what the other
// has declared complete, and copies a number before it checks it.
//
// Thread-safety: const methods may run concurrently. The user decides which
// thread may touch which bytes.
class SharedMemory {
 public:
  // Zeros. The start is a multiple of a page. Throws IoError if there is no
  // memory.
  static std::shared_ptr<SharedMemory> Create(size_t size_bytes);

  // nullptr, with the reason in `why`, if the handle leads to no block of this
  // host that holds its token. Never opens anything but sealed memory files.
  static std::shared_ptr<SharedMemory> Open(const SharedMemoryHandle& handle,
                                            std::string* why);

  // The creator's destructor withdraws the token, see IsWithdrawn().
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const SharedMemoryHandle& handle() const { return handle_; }
  std::span<std::byte> bytes() const;
  // Whether the creator has released the block. The other side should release
  // it too, or the memory stays in use. Stays false if the creator was killed.
  bool IsWithdrawn() const;

 private:
  // The part in front of the block.
  struct Header {
    uint64_t token[2];
  };
  static constexpr size_t kHeaderBytes = 4096;

  SharedMemory(const SharedMemoryHandle& handle, int fd, std::byte* mapped,
               bool is_creator)
      : handle_(handle), fd_(fd), mapped_(mapped), is_creator_(is_creator) {}
  Header* header() const { return reinterpret_cast<Header*>(mapped_); }
  // nullptr if there is no memory, with errno. `flags` as for mmap, in addition
  // to MAP_SHARED.
  static std::byte* Map(int fd, size_t size_bytes, int flags);

  const SharedMemoryHandle handle_;
  const int fd_;  // -1 where it was opened: the mapping is enough
  std::byte* const mapped_;
  const bool is_creator_;
};

}  // namespace replicant::rpc
