#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/kernels/shared_packs.h"
#include "core/tensor/host_buffer.h"

namespace replicant::kernels::cpu {

// Where a kernel has an operand packed, in a layout of its own: made anew by
// each launch in scratch memory, kept while the operand does not change, or
// made and read together with the kernels of other replicas.
class PackMemory {
 public:
  // Pieces of one that is shared, of about equal size.
  static constexpr int64_t kPieces = 8;

  PackMemory() = default;
  explicit PackMemory(size_t size_bytes) : size_bytes_(size_bytes) {}

  // Kernel::KeepInput(), InputChanged() and ShareInput() of the operand.
  void Keep() { kept_.emplace(size_bytes_); }
  void MarkChanged() { is_stale_ = true; }
  void Share(const std::string& name, SharedPacks* packs) {
    shared_ = packs->Get(name, size_bytes_);
  }
  bool is_shared() const { return shared_ != nullptr; }

  // Of the kernel's scratch memory.
  size_t scratch_size_bytes() const {
    return kept_ || shared_ ? 0 : size_bytes_;
  }
  // Where the packed operand lies; `scratch` has room for it.
  std::byte* Bind(std::byte* scratch) {
    is_stale_ = true;
    if (shared_) return shared_->data();
    return kept_ ? kept_->data() : scratch;
  }

  // Calls make(piece) for those of the pieces 0 .. num_pieces - 1 that are to
  // be made now, by this kernel.
  template <typename Make>
  void Refresh(int64_t num_pieces, const Make& make) {
    if (shared_) {
      shared_->MakePieces(num_rounds_++, num_pieces, make);
    } else if (!kept_ || is_stale_) {
      for (int64_t piece = 0; piece < num_pieces; ++piece) make(piece);
      is_stale_ = false;
    }
  }

 private:
  size_t size_bytes_ = 0;
  std::optional<HostBuffer> kept_;
  bool is_stale_ = true;
  std::shared_ptr<SharedPack> shared_;
  int64_t num_rounds_ = 0;
};

}  // namespace replicant::kernels::cpu
