#include "core/comm/process_collectives.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/check.h"

namespace replicant::comm {
namespace {

// Bytes to one process per message and rank: small enough for MPI's int and for
// the memory of an all-reduce, large enough that processes seldom wait.
constexpr size_t kPieceBytes = size_t{4} << 20;
// Bytes of a piece that goes from process to process, each of which holds one.
constexpr size_t kChainPieceBytes = size_t{512} << 10;
// Inputs of all ranks together up to which latency counts more than bytes.
constexpr size_t kSmallBytes = size_t{32} << 10;
// Processes up to which each sends to all others.
constexpr int kMaxDirect = 4;

}  // namespace

ProcessCollectives::ProcessCollectives(ProcessExchange* exchange,
                                       std::vector<int> process_of)
    : exchange_(*exchange),
      process_of_(std::move(process_of)),
      ranks_of_(static_cast<size_t>(exchange->num_processes())),
      thread_of_(process_of_.size(), -1),
      is_ordered_(std::ranges::is_sorted(process_of_)) {
  for (int r = 0; r < num_ranks(); ++r) {
    ranks_of_[static_cast<size_t>(process_of_[static_cast<size_t>(r)])]
        .push_back(r);
  }
  ranks_ = ranks_of_[static_cast<size_t>(exchange_.process())];
  for (size_t t = 0; t < ranks_.size(); ++t) {
    thread_of_[static_cast<size_t>(ranks_[t])] = static_cast<int>(t);
  }
}

void ProcessCollectives::Make(const Collective& c, const ThreadGroup& threads) {
  threads_ = &threads;
  switch (c.kind) {
    case Collective::Kind::kAllReduce:
      if (IsSmall(c.in.size_bytes() * process_of_.size())) {
        std::byte* const outputs[] = {c.out.data()};
        Reduce(c.op, c.in.dtype(), GatherAll(c.in.size_bytes()), outputs, 0,
               static_cast<size_t>(c.in.shape().num_elements()), c.factor);
        return;
      }
      return IsDirect(c) ? AllReduceDirectly(c)
                         : AllReduceInChain(c, c.out.bytes());
    case Collective::Kind::kAllGather:
      return AllGather(c);
    case Collective::Kind::kReduceScatter:
      if (IsSmall(c.in.size_bytes() * process_of_.size())) {
        return ReduceScatterOfGathered(c);
      }
      return IsDirect(c) ? ReduceScatterDirectly(c) : ReduceScatterOfAll(c);
    case Collective::Kind::kBroadcast:
      return Broadcast(c);
    case Collective::Kind::kBarrier:
      GatherAll(/*size_bytes=*/0);
      return;
  }
  REPLICANT_CHECK(false, "Kind {}", static_cast<int>(c.kind));
}

bool ProcessCollectives::IsSmall(size_t bytes_of_all) const {
  return bytes_of_all <= kSmallBytes;
}

bool ProcessCollectives::IsDirect(const Collective& c) const {
  return exchange_.num_processes() <= kMaxDirect || !is_ordered_ ||
         c.in.dtype() == DType::kBF16;
}

std::byte* ProcessCollectives::Reserve(HostBuffer* buffer, size_t size_bytes) {
  if (buffer->size_bytes() < size_bytes) *buffer = HostBuffer(size_bytes);
  return buffer->data();
}

// Round k gets the blocks of 2^k further processes from the one 2^k places on,
// so that blocks lie in the order of processes from this one on.
std::span<const std::byte* const> ProcessCollectives::GatherAll(
    size_t size_bytes) {
  const int processes = exchange_.num_processes();
  const int own = exchange_.process();
  std::byte* const blocks = Reserve(&scratch_, size_bytes * process_of_.size());
  const auto at = [&](int distance) { return (own + distance) % processes; };
  // bytes of the first blocks as they lie here, or at another process
  const auto bytes_of = [&](int first, int count) {
    size_t ranks = 0;
    for (int i = 0; i < count; ++i) {
      ranks += CountOf((first + i) % processes);
    }
    return ranks * size_bytes;
  };
  for (size_t t = 0; t < num_threads() && size_bytes > 0; ++t) {
    std::memcpy(blocks + t * size_bytes, InputOf(t).data(), size_bytes);
  }
  for (int have = 1; have < processes; have *= 2) {
    const int count = std::min(have, processes - have);
    exchange_.Send(at(processes - have), {blocks, bytes_of(own, count)});
    exchange_.Receive(
        at(have), {blocks + bytes_of(own, have), bytes_of(at(have), count)});
    exchange_.Exchange();
  }
  inputs_.assign(process_of_.size(), nullptr);
  size_t offset = 0;
  for (int i = 0; i < processes; ++i) {
    for (const int rank : ranks_of_[static_cast<size_t>(at(i))]) {
      inputs_[static_cast<size_t>(rank)] = blocks + offset;
      offset += size_bytes;
    }
  }
  return inputs_;
}

// The results of a piece travel together with the inputs of the next one.
void ProcessCollectives::AllReduceDirectly(const Collective& c) {
  const size_t element = DTypeSize(c.in.dtype());
  const auto count = static_cast<size_t>(c.in.shape().num_elements());
  const auto processes = static_cast<size_t>(exchange_.num_processes());
  const size_t piece = processes * (kPieceBytes / element);
  // the part of `bytes` that a process reduces, of the piece at `begin`
  const auto part_of = [&](auto bytes, size_t begin, int process) {
    const Range part = PartOf(std::min(piece, count - begin), processes,
                              static_cast<size_t>(process), /*granularity=*/1);
    return bytes.subspan((begin + part.begin) * element, part.size() * element);
  };
  const auto add_results = [&](size_t begin) {
    ForOthers([&](int process) {
      exchange_.Receive(process, part_of(c.out.bytes(), begin, process));
      exchange_.Send(process,
                     part_of(c.out.bytes(), begin, exchange_.process()));
    });
  };
  for (size_t begin = 0; begin < count; begin += piece) {
    if (begin > 0) add_results(begin - piece);
    GatherAndReduce(
        c,
        [&](size_t thread, int process) {
          return part_of(InputOf(thread), begin, process);
        },
        part_of(c.out.bytes(), begin, exchange_.process()));
  }
  add_results((count - 1) / piece * piece);
  exchange_.Exchange();
}

// Process p adds its inputs to piece i in step i + p, and gets the sum back in
// step i + 2 last - p, where `last` is the last process. A partial sum lies in
// `out` until the sum replaces it.
void ProcessCollectives::AllReduceInChain(const Collective& c,
                                          std::span<std::byte> out) {
  const auto own = static_cast<size_t>(exchange_.process());
  const auto last = static_cast<size_t>(exchange_.num_processes()) - 1;
  const int below = exchange_.process() - 1;
  const int above = exchange_.process() + 1;
  const size_t element = DTypeSize(c.in.dtype());
  const size_t size = c.in.size_bytes();
  const size_t num_pieces = (size + kChainPieceBytes - 1) / kChainPieceBytes;
  const auto piece_of = [&](size_t i) {
    return out.subspan(i * kChainPieceBytes,
                       std::min(kChainPieceBytes, size - i * kChainPieceBytes));
  };
  std::byte* const arrived = Reserve(&scratch_, kChainPieceBytes);
  // the piece that is in a stage of its way in this step, if any
  const auto piece_at = [&](size_t step, size_t first_step) {
    return step >= first_step && step - first_step < num_pieces
               ? std::optional(step - first_step)
               : std::nullopt;
  };
  const auto add = [&](size_t i) {
    const size_t offset = i * kChainPieceBytes;
    inputs_.clear();
    if (own > 0) inputs_.push_back(arrived);
    for (size_t t = 0; t < num_threads(); ++t) {
      inputs_.push_back(InputOf(t).data() + offset);
    }
    std::byte* const outputs[] = {out.data() + offset};
    Reduce(c.op, c.in.dtype(), inputs_, outputs, 0,
           piece_of(i).size() / element, own == last ? c.factor : 1.0);
  };
  const size_t num_steps = num_pieces + 2 * last;
  for (size_t step = 0; step < num_steps; ++step) {
    // up: what was added in the step before goes on
    const auto coming = piece_at(step, own);
    if (own > 0 && coming) {
      exchange_.Receive(below, {arrived, piece_of(*coming).size()});
    }
    if (own < last) {
      if (const auto i = piece_at(step, own + 1)) {
        exchange_.Send(above, piece_of(*i));
      }
      if (const auto i = piece_at(step, 2 * last - own)) {
        exchange_.Receive(above, piece_of(*i));
      }
    }
    if (own > 0) {
      // down: the last process sends what it added, the others what they got
      if (const auto i = piece_at(step, 2 * last - own + 1)) {
        exchange_.Send(below, piece_of(*i));
      }
    }
    exchange_.Exchange();
    if (coming) add(*coming);
  }
}

void ProcessCollectives::ReduceScatterOfGathered(const Collective& c) {
  const auto inputs = GatherAll(c.in.size_bytes());
  const auto count = static_cast<size_t>(c.out.shape().num_elements());
  const size_t row = c.out.size_bytes();
  std::vector<const std::byte*> rows(inputs.size());
  for (size_t t = 0; t < num_threads(); ++t) {
    for (size_t r = 0; r < inputs.size(); ++r) {
      rows[r] = inputs[r] + static_cast<size_t>(ranks_[t]) * row;
    }
    std::byte* const outputs[] = {threads_->call_of(t).out.data()};
    Reduce(c.op, c.in.dtype(), rows, outputs, 0, count, c.factor);
  }
}

void ProcessCollectives::ReduceScatterDirectly(const Collective& c) {
  size_t most_ranks = 0;
  for (const auto& ranks : ranks_of_) {
    most_ranks = std::max(most_ranks, ranks.size());
  }
  const size_t row = c.out.size_bytes();
  // one rank of every process at a time; a process may have fewer ranks
  for (size_t i = 0; i < most_ranks; ++i) {
    for (size_t begin = 0; begin < row; begin += kPieceBytes) {
      const size_t n = std::min(kPieceBytes, row - begin);
      std::span<std::byte> out;
      if (i < num_threads()) {
        out = threads_->call_of(i).out.bytes().subspan(begin, n);
      }
      GatherAndReduce(
          c,
          [&](size_t thread, int process) -> std::span<const std::byte> {
            const auto& ranks = ranks_of_[static_cast<size_t>(process)];
            if (i >= ranks.size()) return {};
            return InputOf(thread).subspan(
                static_cast<size_t>(ranks[i]) * row + begin, n);
          },
          out);
    }
  }
}

void ProcessCollectives::ReduceScatterOfAll(const Collective& c) {
  const std::span<std::byte> all(Reserve(&reduced_, c.in.size_bytes()),
                                 c.in.size_bytes());
  AllReduceInChain(c, all);
  const size_t row = c.out.size_bytes();
  for (size_t t = 0; t < num_threads(); ++t) {
    std::memcpy(threads_->call_of(t).out.data(),
                all.data() + static_cast<size_t>(ranks_[t]) * row, row);
  }
}

// Sends in_of(t, p) of every thread t to every process p, and reduces what
// arrives, together with this process's own part, to `out`.
template <typename InOf>
void ProcessCollectives::GatherAndReduce(const Collective& c, const InOf& in_of,
                                         std::span<std::byte> out) {
  std::byte* const scratch =
      Reserve(&scratch_, out.size() * process_of_.size());
  inputs_.clear();
  for (size_t r = 0; r < process_of_.size(); ++r) {
    const int process = process_of_[r];
    if (process == exchange_.process()) {
      inputs_.push_back(
          in_of(static_cast<size_t>(thread_of_[r]), process).data());
    } else {
      std::byte* const arrived = scratch + r * out.size();
      exchange_.Receive(process, {arrived, out.size()});
      inputs_.push_back(arrived);
    }
  }
  // received in rank order
  ForOthers([&](int process) {
    for (size_t t = 0; t < num_threads(); ++t) {
      exchange_.Send(process, in_of(t, process));
    }
  });
  exchange_.Exchange();
  std::byte* const outputs[] = {out.data()};
  Reduce(c.op, c.in.dtype(), inputs_, outputs, 0,
         out.size() / DTypeSize(c.in.dtype()), c.factor);
}

void ProcessCollectives::AllGather(const Collective& c) {
  const size_t row = c.in.size_bytes();
  if (!IsSmall(c.out.size_bytes())) return AllGatherInRing(c);
  const auto inputs = GatherAll(row);
  for (size_t r = 0; r < inputs.size() && row > 0; ++r) {
    std::memcpy(c.out.data() + r * row, inputs[r], row);
  }
}

// Every process passes on to the next one what it got from the one before.
void ProcessCollectives::AllGatherInRing(const Collective& c) {
  const size_t row = c.in.size_bytes();
  const auto row_of = [&](int rank) {
    return c.out.bytes().subspan(static_cast<size_t>(rank) * row, row);
  };
  for (size_t t = 0; t < num_threads(); ++t) {
    CopyTensor(threads_->call_of(t).in, row_of(ranks_[t]).data());
  }
  const int processes = exchange_.num_processes();
  const int own = exchange_.process();
  const int before = (own + processes - 1) % processes;
  for (int step = 0; step + 1 < processes; ++step) {
    const int passed = (own - step + processes) % processes;
    const int coming = (before - step + processes) % processes;
    for (size_t begin = 0; begin < row; begin += kPieceBytes) {
      const size_t n = std::min(kPieceBytes, row - begin);
      for (const int r : ranks_of_[static_cast<size_t>(coming)]) {
        exchange_.Receive(before, row_of(r).subspan(begin, n));
      }
      for (const int r : ranks_of_[static_cast<size_t>(passed)]) {
        exchange_.Send((own + 1) % processes, row_of(r).subspan(begin, n));
      }
      exchange_.Exchange();
    }
  }
}

void ProcessCollectives::Broadcast(const Collective& c) {
  const int thread = thread_of(c.source);
  if (thread >= 0) {
    CopyTensor(threads_->call_of(static_cast<size_t>(thread)).in, c.out.data());
  }
  const int root = process_of_[static_cast<size_t>(c.source)];
  if (IsSmall(c.out.size_bytes())) {
    BroadcastByTree(root, c.out.bytes());
  } else {
    BroadcastInChain(root, c.out.bytes());
  }
}

// With places counted from the root, place p gets the bytes from p without its
// highest bit, and passes them on to p + 2^k for all larger k.
void ProcessCollectives::BroadcastByTree(int root, std::span<std::byte> bytes) {
  const int processes = exchange_.num_processes();
  const int place = (exchange_.process() - root + processes) % processes;
  const auto process_at = [&](int p) { return (p + root) % processes; };
  int bit = 1;
  while (bit <= place) bit *= 2;
  if (place > 0) {
    exchange_.Receive(process_at(place - bit / 2), bytes);
    exchange_.Exchange();
  }
  for (; place + bit < processes; bit *= 2) {
    exchange_.Send(process_at(place + bit), bytes);
  }
  exchange_.Exchange();
}

// With places counted from the root, place p gets piece i in step i + p - 1.
void ProcessCollectives::BroadcastInChain(int root,
                                          std::span<std::byte> bytes) {
  const int processes = exchange_.num_processes();
  const int own = exchange_.process();
  const auto place = static_cast<size_t>((own - root + processes) % processes);
  const bool is_end = place + 1 == static_cast<size_t>(processes);
  const size_t num_pieces =
      (bytes.size() + kChainPieceBytes - 1) / kChainPieceBytes;
  const auto piece_of = [&](size_t i) {
    return bytes.subspan(
        i * kChainPieceBytes,
        std::min(kChainPieceBytes, bytes.size() - i * kChainPieceBytes));
  };
  for (size_t step = 0; step <= num_pieces; ++step) {
    if (place > 0 && step < num_pieces) {
      exchange_.Receive((own + processes - 1) % processes, piece_of(step));
    }
    // the root has all pieces at once
    const size_t passed = place > 0 ? step - 1 : step;
    if (!is_end && passed < num_pieces) {
      exchange_.Send((own + 1) % processes, piece_of(passed));
    }
    exchange_.Exchange();
  }
}

}  // namespace replicant::comm
