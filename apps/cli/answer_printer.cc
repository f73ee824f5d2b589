#include "answer_printer.h"

#include "failure.h"

namespace fathom::cli {

AnswerPrinter::AnswerPrinter(const Options& options, Output& content, Output& aside)
    : stop_strings_(options.stop_strings), content_(content), aside_(aside) {
  fathom_parser* parser = nullptr;
  require(fathom_parser_create(options.tokenizer, options.starts_in_thinking, options.conversation_json,
                               &parser));
  parser_.reset(parser);
}

Verdict AnswerPrinter::take(int32_t id) {
  const fathom_event* events = nullptr;
  size_t count = 0;
  require(fathom_parser_feed(parser_.get(), &id, 1, &events, &count));
  show(events, count);
  if (content_.is_closed()) return Verdict::kOutputClosed;
  return stop_strings_.found() ? Verdict::kStopString : Verdict::kGoOn;
}

void AnswerPrinter::finish(int32_t end_id) {
  const fathom_event* events = nullptr;
  size_t count = 0;
  if (end_id >= 0) {
    require(fathom_parser_feed(parser_.get(), &end_id, 1, &events, &count));
    show(events, count);
  }
  require(fathom_parser_finish(parser_.get(), &events, &count));
  show(events, count);
  show_content(stop_strings_.finish());
  leave_aside();
}

std::string AnswerPrinter::message_json() const {
  char* json = nullptr;
  require(fathom_parser_message(parser_.get(), &json));
  return Text(json).get();
}

void AnswerPrinter::show(const fathom_event* events, size_t count) {
  for (const fathom_event& event : std::span(events, count)) {
    const std::string_view text(event.text != nullptr ? event.text : "", event.text_bytes);
    switch (event.kind) {
      case FATHOM_EVENT_REASONING: show_aside(text); break;
      case FATHOM_EVENT_CONTENT: show_content(stop_strings_.take(text)); break;
      case FATHOM_EVENT_CALL_START:
        show_aside(
            fmt::format("{}[call {} ", aside_.at_line_start() ? "" : "\n", event.name ? event.name : ""));
        break;
      case FATHOM_EVENT_CALL_ARGUMENTS: show_aside(text); break;
      case FATHOM_EVENT_CALL_END: show_aside("]\n"); break;
      case FATHOM_EVENT_CALL_DROPPED: show_aside(" malformed]\n"); break;
    }
  }
}

void AnswerPrinter::show_aside(std::string_view text) {
  if (text.empty()) return;
  if (!in_aside_ && aside_.has_style()) aside_.write_raw("\033[2m");
  in_aside_ = true;
  aside_.write(text);
}

void AnswerPrinter::show_content(std::string_view text) {
  if (text.empty()) return;
  leave_aside();
  content_.write(text);
}

void AnswerPrinter::leave_aside() {
  if (!in_aside_) return;
  in_aside_ = false;
  const bool ends_line = aside_.at_line_start();
  if (aside_.has_style()) aside_.write_raw("\033[0m");
  aside_.write_raw(ends_line ? "" : "\n");
  aside_.mark_line_start();
}

}  // namespace fathom::cli
