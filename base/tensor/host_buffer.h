#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace replicant {

// Owned host memory, aligned for vector instructions and cache lines.
//
// The start is a multiple of 64 bytes; from 4 MiB on it is a multiple of
// 2 MiB, and the kernel is asked for huge pages. Moving keeps the address and
// leaves the source empty.
//
// Thread-safety: as a std::vector.
class HostBuffer {
 public:
  static constexpr size_t kAlignment = 64;

  enum class Fill { kZero, kUninitialised };

  // Empty: size 0, data null.
  HostBuffer() = default;
  // Throws std::bad_alloc. Decoders check a size that came from outside before
  // they call this.
  explicit HostBuffer(size_t size_bytes, Fill fill = Fill::kZero);
  // Memory that `owner` holds, such as a part of a larger block; it must be
  // aligned to kAlignment (checked).
  static HostBuffer Adopt(std::span<std::byte> bytes,
                          std::shared_ptr<void> owner);
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer() = default;

  size_t size_bytes() const { return size_bytes_; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::span<std::byte> bytes() { return {data_.get(), size_bytes_}; }
  std::span<const std::byte> bytes() const {
    return {data_.get(), size_bytes_};
  }

 private:
  struct Deleter {
    std::shared_ptr<void> owner;  // none: the memory is the buffer's own
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Deleter> data_;
  size_t size_bytes_ = 0;
};

}  // namespace replicant
