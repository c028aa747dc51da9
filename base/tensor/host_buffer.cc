#include "base/tensor/host_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"

namespace replicant {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// below two huge pages the alignment could waste as much as it gains
constexpr size_t kHugePageThreshold = 2 * kHugePage;

std::byte* Allocate(size_t size_bytes) {
  const bool is_large = size_bytes >= kHugePageThreshold;
  void* data = nullptr;
  if (::posix_memalign(&data, is_large ? kHugePage : HostBuffer::kAlignment,
                       size_bytes) != 0) {
    throw std::bad_alloc();
  }
  // only advice: without huge pages the memory is the same, a little slower;
  // whole pages only, the last part may share its page with other memory
  if (is_large) {
    ::madvise(data, size_bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

void HostBuffer::Deleter::operator()(std::byte* data) const {
  if (owner == nullptr) std::free(data);
}

HostBuffer::HostBuffer(size_t size_bytes, Fill fill) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  data_.reset(Allocate(size_bytes));
  if (fill == Fill::kZero) std::memset(data_.get(), 0, size_bytes);
}

HostBuffer HostBuffer::Adopt(std::span<std::byte> bytes,
                             std::shared_ptr<void> owner) {
  REPLICANT_CHECK(owner != nullptr, "memory without an owner");
  REPLICANT_CHECK_EQ(reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment,
                     0u);
  HostBuffer buffer;
  buffer.data_ = {bytes.data(), Deleter{std::move(owner)}};
  buffer.size_bytes_ = bytes.size();
  return buffer;
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::move(other.data_)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  data_ = std::move(other.data_);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  return *this;
}

}  // namespace replicant
