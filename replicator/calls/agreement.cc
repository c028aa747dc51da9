#include "replicator/calls/agreement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "base/error.h"
#include "replicator/calls/collective_ops.h"

namespace replicant::replicator {
namespace {

using graph::Endpoint;
using graph::Node;
using graph::VariableSpec;

// Separates signatures, sections, entries and their two texts. Occurs in no
// name or path.
constexpr char kSignatureMark = '\x1c';
constexpr char kSectionMark = '\x1d';
constexpr char kEntryMark = '\x1e';
constexpr char kTextMark = '\x1f';

// FNV-1a, 64 bits: the same in every process.
class Hash {
 public:
  void Add(std::string_view text) {
    for (const char c : text) AddByte(static_cast<uint8_t>(c));
    AddByte(0);
  }
  void Add(std::span<const std::byte> bytes) {
    for (const std::byte b : bytes) AddByte(static_cast<uint8_t>(b));
  }
  void Add(uint64_t number) {
    for (int i = 0; i < 8; ++i)
      AddByte(static_cast<uint8_t>(number >> (8 * i)));
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3U; }

  uint64_t value_ = 0xcbf29ce484222325U;
};

// for each node: what it computes, whatever its name
std::vector<uint64_t> HashNodes(const Graph& graph) {
  std::vector<uint64_t> hashes;
  uint64_t num_primitives = 0;
  for (const Node& node : graph.nodes()) {
    Hash hash;
    hash.Add(node.op->name);
    hash.Add(static_cast<uint64_t>(node.device));
    if (PrimitiveOf(node) != Primitive::kNone) {
      // compared separately: they decide the result of the call
      hash.Add(num_primitives++);
    } else {
      // names of other nodes depend on the number of nodes
      if (node.inputs.empty() && node.constant == nullptr) hash.Add(node.name);
      hash.Add(node.attributes.ToString());
      if (node.constant != nullptr) {
        hash.Add(node.output_type().ToString());
        hash.Add(node.constant->bytes());
      }
      for (const Endpoint& input : node.inputs) {
        hash.Add(hashes[static_cast<size_t>(input.node)]);
        hash.Add(static_cast<uint64_t>(input.index));
      }
    }
    hashes.push_back(hash.value());
  }
  return hashes;
}

std::string DescribeVariable(const VariableSpec& spec) {
  return fmt::format("'{}' {}{}{}", spec.name, DTypeName(spec.dtype),
                     spec.shape.ToString(),
                     spec.is_trainable ? ", trained" : "");
}

[[noreturn]] void FailOn(size_t replica, const Signature::Section& section,
                         size_t index, const Signature::Section& other) {
  const auto describe = [index](const Signature::Section& s) {
    if (index >= s.entries.size()) {
      const std::string where = s.entries.empty() ? "" : s.entries.back().where;
      return fmt::format("none{}{}", where.empty() ? "" : " after ", where);
    }
    const Signature::Entry& entry = s.entries[index];
    return entry.where.empty()
               ? entry.what
               : fmt::format("{} ({})", entry.what, entry.where);
  };
  throw InvalidArgument(fmt::format(
      "replicas 0 and {} differ in {} {}: {} and {}; hint: every replica calls "
      "the same primitives on the same types in the same order, and computes "
      "the same from the results",
      replica, section.name, index + 1, describe(section), describe(other)));
}

std::vector<std::string_view> Split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(mark);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

// Walks a graph and finds what differs between replicas.
class LocalFinder {
 public:
  explicit LocalFinder(const Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) is_local_.push_back(IsLocal(node));
  }

  bool is_local(graph::NodeId id) const {
    return is_local_[static_cast<size_t>(id)];
  }
  const std::vector<bool>& all() const { return is_local_; }

 private:
  bool IsLocal(const Node& node) const {
    const Primitive primitive = PrimitiveOf(node);
    if (primitive == Primitive::kReduceScatter) return true;
    if (primitive != Primitive::kNone) return false;
    if (node.op == &graph::InputOp()) return true;
    if (node.op == &graph::VariableOp()) {
      const VariableSpec& spec = graph_.variable(
          static_cast<VariableId>(node.attributes.Int("variable")));
      return !spec.is_trainable &&
             spec.agreement == graph::ReplicaAgreement::kPerReplica;
    }
    // random numbers depend on the global row
    if (node.attributes.Has("first_row")) return true;
    return std::ranges::any_of(node.inputs, [&](const Endpoint& input) {
      return is_local_[static_cast<size_t>(input.node)];
    });
  }

  const Graph& graph_;
  std::vector<bool> is_local_;
};

}  // namespace

Signature SignatureOf(const graph::Program& program) {
  const Graph& graph = *program.graph;
  Signature::Section primitives{.name = "primitive", .entries = {}};
  Signature::Section variables{.name = "variable", .entries = {}};
  Signature::Section updates{.name = "update", .entries = {}};
  const LocalFinder finder(graph);
  const std::vector<uint64_t> hashes = HashNodes(graph);
  for (const Node& node : graph.nodes()) {
    if (PrimitiveOf(node) != Primitive::kNone) {
      primitives.entries.push_back(
          {Describe(graph, node), node.site.ToString()});
    }
    for (const VariableId variable : node.updates) {
      // a replica may compute its private values as it likes
      const uint64_t how =
          finder.is_local(node.id) ? 0 : hashes[static_cast<size_t>(node.id)];
      updates.entries.push_back(
          {fmt::format("{} of '{}' [{:016x}]", node.op->name,
                       graph.variable(variable).name, how),
           node.site.ToString()});
    }
  }
  for (const VariableSpec& spec : graph.variables()) {
    variables.entries.push_back({DescribeVariable(spec), ""});
  }
  return {{std::move(primitives), std::move(variables), std::move(updates)}};
}

void AddCalls(const LoweredProgram& program, Signature* signature) {
  Signature::Section section{.name = "call", .entries = {}};
  for (size_t i = 0; i < program.calls.size(); ++i) {
    section.entries.push_back(
        {fmt::format("{}, of primitives {}", program.calls[i],
                     fmt::join(program.members[i], " ")),
         ""});
  }
  signature->sections.push_back(std::move(section));
}

void CheckAgreement(const std::vector<Signature>& signatures) {
  for (size_t replica = 1; replica < signatures.size(); ++replica) {
    for (size_t s = 0; s < signatures[0].sections.size(); ++s) {
      const Signature::Section& first = signatures[0].sections[s];
      const Signature::Section& other = signatures[replica].sections.at(s);
      const size_t count = std::max(first.entries.size(), other.entries.size());
      for (size_t i = 0; i < count; ++i) {
        const bool is_same = i < first.entries.size() &&
                             i < other.entries.size() &&
                             first.entries[i].what == other.entries[i].what;
        if (!is_same) FailOn(replica, first, i, other);
      }
    }
  }
}

std::string Encode(const std::vector<Signature>& signatures) {
  std::string text;
  for (const Signature& signature : signatures) {
    for (const Signature::Section& section : signature.sections) {
      text += section.name + kEntryMark;
      for (const Signature::Entry& entry : section.entries) {
        text += entry.what + kTextMark + entry.where + kEntryMark;
      }
      text += kSectionMark;
    }
    text += kSignatureMark;
  }
  return text;
}

std::vector<Signature> Decode(const std::string& text) {
  std::vector<Signature> signatures;
  for (const std::string_view sections : Split(text, kSignatureMark)) {
    Signature signature;
    for (const std::string_view part : Split(sections, kSectionMark)) {
      const std::vector<std::string_view> lines = Split(part, kEntryMark);
      Signature::Section section{.name = std::string(lines.at(0)),
                                 .entries = {}};
      for (size_t i = 1; i < lines.size(); ++i) {
        const size_t middle = lines[i].find(kTextMark);
        section.entries.push_back({std::string(lines[i].substr(0, middle)),
                                   std::string(lines[i].substr(middle + 1))});
      }
      signature.sections.push_back(std::move(section));
    }
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

std::vector<bool> FindLocalNodes(const Graph& graph) {
  return LocalFinder(graph).all();
}

std::vector<bool> FindNeededNodes(const Graph& graph,
                                  const std::vector<Output>& outputs,
                                  const std::vector<Output>& updates) {
  std::vector<bool> is_needed(graph.nodes().size(), false);
  for (const auto* list : {&outputs, &updates}) {
    for (const Output& output : *list) {
      is_needed[static_cast<size_t>(output.node)] = true;
    }
  }
  for (size_t id = is_needed.size(); id-- > 0;) {
    if (!is_needed[id]) continue;
    for (const Endpoint& input :
         graph.node(static_cast<graph::NodeId>(id)).inputs) {
      is_needed[static_cast<size_t>(input.node)] = true;
    }
  }
  return is_needed;
}

std::vector<LocalUpdate> FindLocalUpdates(const Graph& graph,
                                          const std::vector<Output>& outputs,
                                          const std::vector<Output>& updates) {
  const LocalFinder finder(graph);
  const std::vector<bool> is_needed = FindNeededNodes(graph, outputs, updates);
  std::map<VariableId, CallSite> found;
  for (const Node& node : graph.nodes()) {
    if (!is_needed[static_cast<size_t>(node.id)]) continue;
    for (const VariableId variable : node.updates) {
      // the last update decides the variable's value
      if (finder.is_local(node.id)) {
        found[variable] = node.site;
      } else {
        found.erase(variable);
      }
    }
  }
  std::vector<LocalUpdate> result;
  result.reserve(found.size());
  for (const auto& [variable, site] : found) result.push_back({variable, site});
  return result;
}

}  // namespace replicant::replicator
