#include "replicator/comm/process_collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace replicant::comm {
namespace {

// Bytes of a message: small enough for MPI's int, large enough that processes
// seldom wait.
constexpr size_t kPieceBytes = size_t{4} << 20;
// Bytes of a piece that goes from process to process, each of which holds one.
constexpr size_t kChainPieceBytes = size_t{512} << 10;
// Inputs of all ranks together up to which latency counts more than bytes.
constexpr size_t kSmallBytes = size_t{32} << 10;

size_t IndexIn(std::span<const int> members, int process) {
  return static_cast<size_t>(std::ranges::find(members, process) -
                             members.begin());
}

std::vector<int> AllOf(int num_processes) {
  std::vector<int> all(static_cast<size_t>(num_processes));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

ProcessCollectives::ProcessCollectives(ProcessExchange* exchange,
                                       std::vector<int> process_of)
    : exchange_(*exchange),
      process_of_(std::move(process_of)),
      ranks_of_(static_cast<size_t>(exchange->num_processes())),
      thread_of_(process_of_.size(), -1),
      layout_(exchange->host_of()),
      place_(IndexIn(layout_.chain, exchange->process())) {
  for (int r = 0; r < num_ranks(); ++r) {
    ranks_of_[static_cast<size_t>(process_of_[static_cast<size_t>(r)])]
        .push_back(r);
  }
  ranks_ = ranks_of_[static_cast<size_t>(exchange_.process())];
  for (size_t t = 0; t < ranks_.size(); ++t) {
    thread_of_[static_cast<size_t>(ranks_[t])] = static_cast<int>(t);
  }
  // sums can be passed on if ranks are numbered by process
  const bool is_ordered = std::ranges::is_sorted(process_of_);
  is_one_group_ = layout_.groups.size() == 1 || !is_ordered;
  groups_.emplace(
      &exchange_,
      is_ordered
          ? layout_.groups
          : std::vector<std::vector<int>>{AllOf(exchange_.num_processes())},
      ranks_of_);
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
      return AllReduceInGroups(c, c.out.bytes());
    case Collective::Kind::kAllGather:
      return AllGather(c);
    case Collective::Kind::kReduceScatter:
      if (IsSmall(c.in.size_bytes() * process_of_.size())) {
        return ReduceScatterOfGathered(c);
      }
      return is_one_group_ ? ReduceScatterDirectly(c) : ReduceScatterOfAll(c);
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

std::byte* ProcessCollectives::Reserve(HostBuffer* buffer, size_t size_bytes) {
  if (buffer->size_bytes() < size_bytes) *buffer = HostBuffer(size_bytes);
  return buffer->data();
}

// Round k gets the blocks of 2^k further members from the one 2^k places on, so
// that blocks lie in the order of members from this one on.
void ProcessCollectives::GatherBlocks(std::span<const int> members,
                                      std::span<const size_t> sizes,
                                      std::byte* blocks) {
  const size_t count = members.size();
  const size_t own = IndexIn(members, exchange_.process());
  const auto at = [&](size_t distance) { return (own + distance) % count; };
  // bytes of the first blocks as they lie here, or at another member
  const auto bytes_of = [&](size_t first, size_t number) {
    size_t bytes = 0;
    for (size_t i = 0; i < number; ++i) bytes += sizes[(first + i) % count];
    return bytes;
  };
  for (size_t have = 1; have < count; have *= 2) {
    const size_t number = std::min(have, count - have);
    exchange_.Send(members[at(count - have)], {blocks, bytes_of(own, number)});
    exchange_.Receive(members[at(have)], {blocks + bytes_of(own, have),
                                          bytes_of(at(have), number)});
    exchange_.Exchange();
  }
}

std::span<const std::byte* const> ProcessCollectives::GatherAll(
    size_t size_bytes) {
  const size_t all_bytes = size_bytes * process_of_.size();
  std::byte* const blocks = Reserve(&scratch_, all_bytes);
  for (size_t t = 0; t < num_threads() && size_bytes > 0; ++t) {
    std::memcpy(blocks + t * size_bytes, InputOf(t).data(), size_bytes);
  }
  const size_t own_host = static_cast<size_t>(
      layout_.host_of[static_cast<size_t>(exchange_.process())]);
  const std::vector<int>& host = layout_.hosts[own_host];
  std::vector<size_t> sizes;
  sizes.reserve(host.size());
  for (const int p : host) sizes.push_back(CountOf(p) * size_bytes);
  GatherBlocks(host, sizes, blocks);
  const size_t num_hosts = layout_.hosts.size();
  if (num_hosts > 1) {
    if (host[0] == exchange_.process()) {
      std::vector<int> leaders;
      sizes.clear();
      for (const auto& members : layout_.hosts) {
        leaders.push_back(members[0]);
        size_t ranks = 0;
        for (const int p : members) ranks += CountOf(p);
        sizes.push_back(ranks * size_bytes);
      }
      GatherBlocks(leaders, sizes, blocks);
    }
    BroadcastByTree(host, /*root=*/0, {blocks, all_bytes});
  }
  // on one host blocks begin with this process, otherwise with the first one
  // of its host
  inputs_.assign(process_of_.size(), nullptr);
  size_t offset = 0;
  const size_t first = num_hosts > 1 ? IndexIn(layout_.chain, host[0]) : place_;
  for (size_t i = 0; i < layout_.chain.size(); ++i) {
    const int p = layout_.chain[(first + i) % layout_.chain.size()];
    for (const int rank : ranks_of_[static_cast<size_t>(p)]) {
      inputs_[static_cast<size_t>(rank)] = blocks + offset;
      offset += size_bytes;
    }
  }
  return inputs_;
}

void ProcessCollectives::AllReduceInGroups(const Collective& c,
                                           std::span<std::byte> out) {
  inputs_.clear();
  for (size_t t = 0; t < num_threads(); ++t) {
    inputs_.push_back(InputOf(t).data());
  }
  groups_->AllReduce(c, inputs_, out);
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
  for (size_t begin = 0; begin < row; begin += kPieceBytes) {
    const size_t n = std::min(kPieceBytes, row - begin);
    // one rank of every process at a time; a process may have fewer ranks
    for (size_t i = 0; i < most_ranks; ++i) ReduceRows(c, i, begin, n);
  }
}

// Reduces bytes [begin, begin + n) of the row of the i-th rank of every
// process.
void ProcessCollectives::ReduceRows(const Collective& c, size_t i, size_t begin,
                                    size_t n) {
  const auto input_of = [&](size_t thread, int rank) {
    return InputOf(thread).subspan(
        static_cast<size_t>(rank) * c.out.size_bytes() + begin, n);
  };
  if (i < num_threads()) {
    std::byte* const scratch = Reserve(&scratch_, n * process_of_.size());
    inputs_.clear();
    for (size_t r = 0; r < process_of_.size(); ++r) {
      if (thread_of_[r] >= 0) {
        inputs_.push_back(
            input_of(static_cast<size_t>(thread_of_[r]), ranks_[i]).data());
        continue;
      }
      std::byte* const arrived = scratch + r * n;
      exchange_.Receive(process_of_[r], {arrived, n});
      inputs_.push_back(arrived);
    }
  }
  // received in rank order
  ForOthers([&](int process) {
    const auto& ranks = ranks_of_[static_cast<size_t>(process)];
    for (size_t t = 0; t < num_threads() && i < ranks.size(); ++t) {
      exchange_.Send(process, input_of(t, ranks[i]));
    }
  });
  exchange_.Exchange();
  if (i >= num_threads()) return;
  std::byte* const outputs[] = {threads_->call_of(i).out.data() + begin};
  Reduce(c.op, c.in.dtype(), inputs_, outputs, 0, n / DTypeSize(c.in.dtype()),
         c.factor);
}

void ProcessCollectives::ReduceScatterOfAll(const Collective& c) {
  const std::span<std::byte> all(Reserve(&reduced_, c.in.size_bytes()),
                                 c.in.size_bytes());
  AllReduceInGroups(c, all);
  const size_t row = c.out.size_bytes();
  for (size_t t = 0; t < num_threads(); ++t) {
    std::memcpy(threads_->call_of(t).out.data(),
                all.data() + static_cast<size_t>(ranks_[t]) * row, row);
  }
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
  const size_t count = layout_.chain.size();
  const auto process_at = [&](size_t place) {
    return layout_.chain[(place_ + place) % count];
  };
  const int before = process_at(count - 1);
  for (size_t step = 0; step + 1 < count; ++step) {
    const int passed = process_at(count - step);
    const int coming = process_at(count - 1 - step);
    for (size_t begin = 0; begin < row; begin += kPieceBytes) {
      const size_t n = std::min(kPieceBytes, row - begin);
      for (const int r : ranks_of_[static_cast<size_t>(coming)]) {
        exchange_.Receive(before, row_of(r).subspan(begin, n));
      }
      for (const int r : ranks_of_[static_cast<size_t>(passed)]) {
        exchange_.Send(process_at(1), row_of(r).subspan(begin, n));
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

// Among the hosts first, where the root stands for its own, then on every host.
void ProcessCollectives::BroadcastByTree(int root, std::span<std::byte> bytes) {
  const int root_host = layout_.host_of[static_cast<size_t>(root)];
  const int own_host =
      layout_.host_of[static_cast<size_t>(exchange_.process())];
  const auto leader_of = [&](int host) {
    return host == root_host ? root
                             : layout_.hosts[static_cast<size_t>(host)][0];
  };
  if (exchange_.process() == leader_of(own_host)) {
    std::vector<int> leaders;
    leaders.reserve(layout_.hosts.size());
    for (int h = 0; h < static_cast<int>(layout_.hosts.size()); ++h) {
      leaders.push_back(leader_of(h));
    }
    BroadcastByTree(leaders, static_cast<size_t>(root_host), bytes);
  }
  const std::vector<int>& host = layout_.hosts[static_cast<size_t>(own_host)];
  BroadcastByTree(host, IndexIn(host, leader_of(own_host)), bytes);
}

// With places counted from the root, place p gets the bytes from p without its
// highest bit, and passes them on to p + 2^k for all larger k.
void ProcessCollectives::BroadcastByTree(std::span<const int> members,
                                         size_t root,
                                         std::span<std::byte> bytes) {
  const size_t count = members.size();
  const size_t place =
      (IndexIn(members, exchange_.process()) + count - root) % count;
  const auto member_at = [&](size_t p) { return members[(p + root) % count]; };
  size_t bit = 1;
  while (bit <= place) bit *= 2;
  if (place > 0) {
    exchange_.Receive(member_at(place - bit / 2), bytes);
    exchange_.Exchange();
  }
  for (; place + bit < count; bit *= 2) {
    exchange_.Send(member_at(place + bit), bytes);
  }
  exchange_.Exchange();
}

// With places counted from the root, place p gets piece i in step i + p - 1.
void ProcessCollectives::BroadcastInChain(int root,
                                          std::span<std::byte> bytes) {
  const size_t count = layout_.chain.size();
  const size_t place = (place_ + count - IndexIn(layout_.chain, root)) % count;
  const bool is_end = place + 1 == count;
  const size_t num_pieces =
      (bytes.size() + kChainPieceBytes - 1) / kChainPieceBytes;
  const auto piece_of = [&](size_t i) {
    return bytes.subspan(
        i * kChainPieceBytes,
        std::min(kChainPieceBytes, bytes.size() - i * kChainPieceBytes));
  };
  for (size_t step = 0; step <= num_pieces; ++step) {
    if (place > 0 && step < num_pieces) {
      exchange_.Receive(layout_.chain[(place_ + count - 1) % count],
                        piece_of(step));
    }
    // the root has all pieces at once
    const size_t passed = place > 0 ? step - 1 : step;
    if (!is_end && passed < num_pieces) {
      exchange_.Send(layout_.chain[(place_ + 1) % count], piece_of(passed));
    }
    exchange_.Exchange();
  }
}

}  // namespace replicant::comm
