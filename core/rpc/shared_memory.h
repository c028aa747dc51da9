#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace replicant::rpc {

// Where another process of this host finds a block; travels in a message.
struct SharedMemoryHandle {
  uint64_t token[2] = {};   // random; proves that both mean the same block
  uint64_t size_bytes = 0;  // of SharedMemory::bytes()
  uint32_t pid = 0;
  uint32_t fd = 0;

  bool operator==(const SharedMemoryHandle&) const = default;
};

// A block of memory that processes of one host share: an unnamed file of memory
// (memfd), so that nothing is left of it when the processes are gone, however
// they end. One process creates it and sends its handle; another opens it
// through /proc/PID/fd/FD. That the other is on this host is proven by the
// token, which stands in front of the block: elsewhere the path leads nowhere,
// or to something without it.
//
// The block is allocated in full when it is created and can neither grow nor
// shrink after that, so that no access ends in SIGBUS whatever the other side
// does. What is written to it needs a message to be ordered; each side only
// reads what the other has said is complete, and copies a number before it
// checks it.
//
// Thread-safety: const methods may run concurrently; who may touch which bytes
// is the user's to say.
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
  // Whether the creator has let go of the block: it is time to follow, or its
  // memory stays taken. Not told of a creator that was killed.
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
  // nullptr if there is no memory, with errno. `flags` as for mmap, beside
  // MAP_SHARED.
  static std::byte* Map(int fd, size_t size_bytes, int flags);

  const SharedMemoryHandle handle_;
  const int fd_;  // -1 where it was opened: the mapping is enough
  std::byte* const mapped_;
  const bool is_creator_;
};

}  // namespace replicant::rpc
