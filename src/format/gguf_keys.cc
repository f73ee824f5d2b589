// Typed access to the keys of a GGUF.
#include <cstring>
#include <limits>

#include "format/gguf.h"

namespace fathom {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

bool is_integer(GgufType type) {
  return type != GgufType::kF32 && type != GgufType::kF64 && type != GgufType::kBool &&
         type != GgufType::kString && type != GgufType::kArray;
}

struct Integer {
  int64_t value;
  size_t bytes;
};

// Integers above 2^63-1 saturate: no key of a model needs one, and a range check then refuses it.
Integer load_integer(GgufType type, const std::byte* from) {
  switch (type) {
    case GgufType::kU8: return {load<uint8_t>(from), 1};
    case GgufType::kI8: return {load<int8_t>(from), 1};
    case GgufType::kU16: return {load<uint16_t>(from), 2};
    case GgufType::kI16: return {load<int16_t>(from), 2};
    case GgufType::kU32: return {load<uint32_t>(from), 4};
    case GgufType::kI32: return {load<int32_t>(from), 4};
    case GgufType::kU64: {
      const uint64_t value = load<uint64_t>(from);
      const uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      return {static_cast<int64_t>(value < limit ? value : limit), 8};
    }
    default: return {load<int64_t>(from), 8};
  }
}

double load_number(GgufType type, const std::byte* from, size_t& bytes) {
  if (type == GgufType::kF32) {
    bytes = 4;
    return load<float>(from);
  }
  if (type == GgufType::kF64) {
    bytes = 8;
    return load<double>(from);
  }
  const Integer integer = load_integer(type, from);
  bytes = integer.bytes;
  return static_cast<double>(integer.value);
}

std::string_view load_string(const std::byte* from) {
  return {reinterpret_cast<const char*>(from) + 8, load<uint64_t>(from)};
}

}  // namespace

std::string_view gguf_value_type_name(GgufType type) {
  constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<size_t>(type)];
}

const GgufValue* GgufKeys::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Result<const GgufValue*> GgufKeys::value(std::string_view key) const {
  const GgufValue* found = find(key);
  if (found == nullptr) return Error::not_found("{}: no key {}", where_, key);
  return found;
}

Result<const GgufValue*> GgufKeys::array(std::string_view key, std::string_view expected) const {
  FATHOM_ASSIGN(const GgufValue* found, value(key));
  if (found->type != GgufType::kArray) return mismatch(key, expected, *found);
  return found;
}

Error GgufKeys::mismatch(std::string_view key, std::string_view expected, const GgufValue& found) const {
  const std::string_view of = found.type == GgufType::kArray ? " of " : "";
  return Error::bad_pack("{}: key {}: expected {}, found {}{}{}", where_, key, expected,
                         gguf_value_type_name(found.type), of,
                         of.empty() ? std::string_view() : gguf_value_type_name(found.element));
}

Result<std::string_view> GgufKeys::string(std::string_view key) const {
  FATHOM_ASSIGN(const GgufValue* found, value(key));
  if (found->type != GgufType::kString) return mismatch(key, "string", *found);
  return load_string(found->bytes.data());
}

Result<bool> GgufKeys::boolean(std::string_view key) const {
  FATHOM_ASSIGN(const GgufValue* found, value(key));
  if (found->type != GgufType::kBool) return mismatch(key, "bool", *found);
  return load<uint8_t>(found->bytes.data()) != 0;
}

Result<int64_t> GgufKeys::integer(std::string_view key, int64_t low, int64_t high) const {
  FATHOM_ASSIGN(const GgufValue* found, value(key));
  if (!is_integer(found->type)) return mismatch(key, "an integer", *found);
  const int64_t integer = load_integer(found->type, found->bytes.data()).value;
  if (integer < low || integer > high)
    return Error::bad_pack("{}: key {}: expected {} to {}, found {}", where_, key, low, high, integer);
  return integer;
}

Result<double> GgufKeys::number(std::string_view key) const {
  FATHOM_ASSIGN(const GgufValue* found, value(key));
  if (!is_integer(found->type) && found->type != GgufType::kF32 && found->type != GgufType::kF64)
    return mismatch(key, "a number", *found);
  size_t bytes = 0;
  return load_number(found->type, found->bytes.data(), bytes);
}

Result<std::vector<int64_t>> GgufKeys::integers(std::string_view key) const {
  FATHOM_ASSIGN(const GgufValue* found, array(key, "array of integers"));
  if (!is_integer(found->element)) return mismatch(key, "array of integers", *found);
  std::vector<int64_t> values(found->count);
  const std::byte* from = found->bytes.data();
  for (int64_t& out : values) {
    const Integer integer = load_integer(found->element, from);
    out = integer.value;
    from += integer.bytes;
  }
  return values;
}

Result<std::vector<double>> GgufKeys::numbers(std::string_view key) const {
  FATHOM_ASSIGN(const GgufValue* found, array(key, "array of numbers"));
  if (!is_integer(found->element) && found->element != GgufType::kF32 && found->element != GgufType::kF64)
    return mismatch(key, "array of numbers", *found);
  std::vector<double> values(found->count);
  const std::byte* from = found->bytes.data();
  for (double& out : values) {
    size_t bytes = 0;
    out = load_number(found->element, from, bytes);
    from += bytes;
  }
  return values;
}

Result<std::vector<std::string_view>> GgufKeys::strings(std::string_view key) const {
  FATHOM_ASSIGN(const GgufValue* found, array(key, "array of strings"));
  if (found->element != GgufType::kString) return mismatch(key, "array of strings", *found);
  std::vector<std::string_view> values(found->count);
  const std::byte* from = found->bytes.data();
  for (std::string_view& out : values) {
    out = load_string(from);
    from += 8 + out.size();
  }
  return values;
}

}  // namespace fathom
