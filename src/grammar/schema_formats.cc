#include <fmt/format.h>

#include "grammar/schema_strings.h"

namespace fathom {
namespace {

std::string date() {
  // Years that are divisible by 4, but by 100 only if by 400.
  const std::string fours = "(\"0\" [48] | [2468] [048] | [13579] [26])";
  const std::string leap = fmt::format("([0-9]{{2}} {0} | (\"00\" | {0}) \"00\")", fours);
  return fmt::format(
      "([0-9]{{4}} \"-\" ((\"0\" [13578] | \"1\" [02]) \"-\" (\"0\" [1-9] | [12] [0-9] | \"3\" [01])"
      " | (\"0\" [469] | \"11\") \"-\" (\"0\" [1-9] | [12] [0-9] | \"30\")"
      " | \"02-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8])) | {} \"-02-29\")",
      leap);
}

std::string time() {
  const std::string hours = "([01] [0-9] | \"2\" [0-3])";
  return fmt::format(
      "{0} \":\" [0-5] [0-9] \":\" [0-5] [0-9] (\".\" [0-9]{{1,9}})? (\"Z\" | [+\\-] {0} \":\" [0-5] "
      "[0-9])",
      hours);
}

std::string uuid() {
  const std::string hex = "[0-9a-fA-F]";
  return fmt::format("{0}{{8}} \"-\" {0}{{4}} \"-\" {0}{{4}} \"-\" {0}{{4}} \"-\" {0}{{12}}", hex);
}

std::string ipv4() {
  const std::string byte = "([0-9] | [1-9] [0-9] | \"1\" [0-9]{2} | \"2\" [0-4] [0-9] | \"25\" [0-5])";
  return fmt::format("{0} (\".\" {0}){{3}}", byte);
}

// Eight groups, or fewer with one "::" for at least one group of zeros. The forms with an IPv4 tail are left
// out.
std::string ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string text = fmt::format("({0} (\":\" {0}){{7}} | \"::\" ({0} (\":\" {0}){{0,6}})?", group);
  for (int before = 1; before <= 7; ++before) {
    text += fmt::format(" | {0} (\":\" {0}){{{1}}} \"::\"", group, before - 1);
    if (before < 7) text += fmt::format(" ({0} (\":\" {0}){{0,{1}}})?", group, 6 - before);
  }
  return text + ")";
}

// Up to four labels of up to 62 letters, digits and single hyphens: within the limits of 63 and 253.
std::string hostname() {
  const std::string label = "[0-9a-zA-Z]{1,20} (\"-\" [0-9a-zA-Z]{1,20}){0,2}";
  return fmt::format("{0} (\".\" {0}){{0,3}}", label);
}

std::string email() {
  const std::string atom = "[0-9a-zA-Z!#$%&'*+/=?\\^_`{|}~\\-]{1,20}";
  return fmt::format("{0} (\".\" {0}){{0,2}} \"@\" {1}", atom, hostname());
}

std::string uri() {
  const std::string escape = "\"%\" [0-9a-fA-F]{2}";
  const std::string path = fmt::format("([0-9a-zA-Z._~!$&'()*+,;=:@/\\-] | {})", escape);
  const std::string query = fmt::format("([0-9a-zA-Z._~!$&'()*+,;=:@/?\\-] | {})", escape);
  return fmt::format(
      "[a-zA-Z] [0-9a-zA-Z+.\\-]{{0,15}} \"://\" {} (\":\" [0-9]{{1,5}})? (\"/\" {}*)? (\"?\" {}*)? (\"#\" "
      "{}*)?",
      hostname(), path, query, query);
}

}  // namespace

std::optional<std::string> gbnf_format(std::string_view format) {
  if (format == "date") return date();
  if (format == "time") return time();
  if (format == "date-time") return date() + " \"T\" " + time();
  if (format == "uuid") return uuid();
  if (format == "ipv4") return ipv4();
  if (format == "ipv6") return ipv6();
  if (format == "hostname") return hostname();
  if (format == "email") return email();
  if (format == "uri") return uri();
  return std::nullopt;
}

}  // namespace fathom
