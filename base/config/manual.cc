#include "base/config/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/config/scalar.h"

namespace replicant::config {
namespace {

using Form = SectionRecord::Form;
using SectionPointer = std::unique_ptr<SectionRecord>;

// "list of sections, number of elements [0, 16]" for the section's heading.
std::string FormText(const SectionRecord& section) {
  if (section.form == Form::kSection) return "";
  std::string text =
      section.form == Form::kList ? "list of sections" : "map of sections";
  if (!section.allowed.empty()) {
    text += ", number of elements " + section.allowed;
  }
  return text;
}

// "integer, [1, 64]".
std::string TypeText(const FieldRecord& field) {
  if (field.allowed.empty()) return field.type;
  return field.type + ", " + field.allowed;
}

// Breaks a text into lines of at most 80 columns behind `indent` and `prefix`.
std::string Wrap(const std::string& text, size_t indent,
                 std::string_view prefix) {
  const std::string head = std::string(indent, ' ') + std::string(prefix);
  std::string out;
  std::string line = head;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word =
        std::string_view(text).substr(begin, end - begin);
    if (line.size() > head.size() && line.size() + 1 + word.size() > 80) {
      out += line + "\n";
      line = head;
    }
    if (line.size() > head.size()) line += ' ';
    line += word;
    begin = end + 1;
  }
  return out + line + "\n";
}

void AddText(const SectionRecord& section, std::string* out) {
  // a section's own keys stand together, its sections follow
  const bool has_fields =
      std::any_of(section.items.begin(), section.items.end(),
                  [](const SectionRecord::Item& item) {
                    return std::holds_alternative<FieldRecord>(item);
                  });
  const bool is_element = section.doc.empty();
  if (has_fields || !is_element) {
    if (!out->empty()) *out += "\n";
    const std::string form = FormText(section);
    if (!section.path.empty()) {
      *out += section.path + (form.empty() ? "" : " (" + form + ")") + "\n";
    }
    if (!is_element) *out += Wrap(section.doc, 2, "");
  }
  for (const SectionRecord::Item& item : section.items) {
    const auto* field = std::get_if<FieldRecord>(&item);
    if (field == nullptr) continue;
    const std::string path =
        section.path.empty() ? field->key : section.path + "." + field->key;
    *out += fmt::format("\n  {} = {}    ({})\n", path, field->default_yaml,
                        TypeText(*field));
    *out += Wrap(field->doc, 6, "");
  }
  for (const SectionRecord::Item& item : section.items) {
    if (const auto* child = std::get_if<SectionPointer>(&item)) {
      AddText(**child, out);
    }
  }
}

// Text that a Markdown table shows as it is.
std::string Cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

void AddMarkdown(const SectionRecord& section, std::string* out) {
  if (!section.path.empty()) {
    if (!out->empty()) *out += "\n";
    *out += "### `" + section.path + "`\n";
    if (!section.doc.empty()) {
      const std::string form = FormText(section);
      *out +=
          "\n" + section.doc + (form.empty() ? "" : " (" + form + ")") + ".\n";
    }
  }
  bool has_table = false;
  for (const SectionRecord::Item& item : section.items) {
    const auto* field = std::get_if<FieldRecord>(&item);
    if (field == nullptr) continue;
    if (!has_table) {
      *out +=
          "\n| key | type | default | allowed | meaning |\n"
          "|---|---|---|---|---|\n";
      has_table = true;
    }
    *out += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", field->key,
                        field->type, Cell(field->default_yaml),
                        Cell(field->allowed), Cell(field->doc));
  }
  for (const SectionRecord::Item& item : section.items) {
    if (const auto* child = std::get_if<SectionPointer>(&item)) {
      AddMarkdown(**child, out);
    }
  }
}

// Adds the keys of a section behind `indent` blanks. In an example, an element
// that the reference does not hold, the keys are comments too.
void AddReference(const SectionRecord& section, size_t indent, bool is_example,
                  std::string* out) {
  const std::string blanks(indent, ' ');
  // of an example the blanks stand behind the comment sign
  const std::string key_head = is_example ? "# " + blanks : blanks;
  const auto comment = [&](const std::string& text) {
    return is_example ? Wrap(text, 0, "# " + blanks + "# ")
                      : Wrap(text, indent, "# ");
  };
  for (const SectionRecord::Item& item : section.items) {
    if (const auto* field = std::get_if<FieldRecord>(&item)) {
      *out += comment(field->doc + " (" + TypeText(*field) + ")");
      *out += key_head + field->key + ": " + field->default_yaml + "\n";
      continue;
    }
    const SectionRecord& child = *std::get<SectionPointer>(item);
    if (indent == 0 && !is_example && !out->empty()) *out += "\n";
    const std::string form = FormText(child);
    *out += comment(child.doc + (form.empty() ? "" : " (" + form + ")"));
    if (child.form == Form::kSection) {
      const bool is_empty = child.items.empty();
      *out += key_head + child.key + (is_empty ? ": {}\n" : ":\n");
      AddReference(child, indent + 2, is_example, out);
      continue;
    }
    // empty by default; the keys of an element follow as a comment
    const bool is_list = child.form == Form::kList;
    *out += key_head + child.key + (is_list ? ": []\n" : ": {}\n");
    const auto& element = *std::get<SectionPointer>(child.items.front());
    *out += "# " + blanks + (is_list ? "  -" : "  " + element.key + ":") + "\n";
    AddReference(element, indent + 4, /*is_example=*/true, out);
  }
}

}  // namespace

Manual::Manual(const SectionRecord& root) {
  AddText(root, &text_);
  AddMarkdown(root, &markdown_);
  AddReference(root, 0, /*is_example=*/false, &reference_yaml_);
  if (reference_yaml_.empty()) reference_yaml_ = "{}\n";
}

}  // namespace replicant::config
