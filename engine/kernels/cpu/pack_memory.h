#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/tensor/host_buffer.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/shared_packs.h"

namespace replicant::kernels::cpu {

// The memory of an operand that a kernel packs into a private layout. The
// traits of the operand decide how long the packed bytes live: each launch
// packs them in scratch memory, the kernel keeps them until the operand
// changes, or the kernels of several replicas pack and read them together.
class PackMemory {
 public:
  // Pieces of a shared pack, of about equal size.
  static constexpr int64_t kPieces = 8;

  PackMemory() = default;
  explicit PackMemory(size_t size_bytes) : size_bytes_(size_bytes) {}

  // Keeps or shares the packed bytes as far as the traits allow. `layout` names
  // the layout among those that a group packs the operand in. Called before
  // anything else.
  void Apply(const InputTraits& traits, const std::string& layout) {
    if (traits.group != nullptr) {
      auto* packs = dynamic_cast<SharedPacks*>(traits.group);
      REPLICANT_CHECK(packs != nullptr, "the group belongs to another backend");
      shared_ = packs->Get(traits.name_in_group + ", " + layout, size_bytes_);
    } else {
      Keep(traits);
    }
  }
  // Keeps the packed bytes if the traits allow it, and never shares them.
  void Keep(const InputTraits& traits) {
    if (traits.is_constant_between_runs) kept_.emplace(size_bytes_);
  }
  // Kernel::InputChanged() of the operand.
  void MarkChanged() { is_stale_ = true; }
  bool is_shared() const { return shared_ != nullptr; }

  // The part of the kernel's scratch memory that Bind() needs.
  size_t scratch_size_bytes() const {
    return kept_ || shared_ ? 0 : size_bytes_;
  }
  // Returns the address of the packed operand. `scratch` holds
  // scratch_size_bytes().
  std::byte* Bind(std::byte* scratch) {
    is_stale_ = true;
    if (shared_) return shared_->data();
    return kept_ ? kept_->data() : scratch;
  }

  // Calls make(piece) for each of the pieces 0 .. num_pieces - 1 that this
  // kernel has to make now.
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
