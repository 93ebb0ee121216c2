#include "exporters/node/node_endpoint.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "exporters/files/own_descriptor.hpp"
#include "exporters/files/private_directory.hpp"
#include "exporters/node/rank_question.hpp"
#include "exporters/node/rank_sockets.hpp"
#include "exporters/prometheus/exposition.hpp"
#include "exporters/prometheus/merge_expositions.hpp"

namespace gradvane::exporters {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPatientEvery = 8;
constexpr std::string_view kRank = "/rank/";

std::string with_query(const std::string& path, const std::string& query) {
  return query.empty() ? path : path + '?' + query;
}

/// /rank/N/rest
struct RankPath {
  std::int32_t rank = 0;
  std::string_view rest;  ///< from its slash on; empty: there is none
};

std::optional<RankPath> rank_path(std::string_view path) {
  if (!path.starts_with(kRank)) return std::nullopt;
  path.remove_prefix(kRank.size());
  const std::string_view digits = path.substr(0, path.find('/'));
  RankPath parts{.rest = path.substr(digits.size())};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), parts.rank);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || parts.rank < 0 || (digits.size() > 1 && digits.front() == '0'))
    return std::nullopt;
  return parts;
}

}  // namespace

/// On the server's thread, but for open().
class NodeEndpoint::Ranks {
 public:
  Ranks(std::string node, Patience patience) : node_(std::move(node)), patience_(patience) {}

  /// Empty, or why not.
  std::string open(const std::filesystem::path& path) {
    auto opened = open_named_directory(path, ::geteuid(), Missing::stays);
    directory_ = std::move(opened.descriptor);
    return opened.error;
  }

  HttpResponse answer(const HttpRequest& request) {
    if (request.path == "/metrics") return metrics(request);
    const auto asked = rank_path(request.path);
    if (!asked) return of_lowest(request);
    if (asked->rest.empty())
      return {.status = 308, .location = with_query(request.path + '/', request.query)};
    if (auto answer = of_rank(asked->rank, std::string(asked->rest), request))
      return std::move(*answer);
    return {.status = 404,
            .body = "no rank " + std::to_string(asked->rank) + " here; there is " +
                    list_of_ranks() + '\n'};
  }

 private:
  [[nodiscard]] std::vector<std::int32_t> ranks() const {
    return ranks_with_socket(directory_.get(), node_);
  }

  [[nodiscard]] RankQuestion ask(std::int32_t rank, const std::string& path,
                                 const HttpRequest& request) const {
    return {directory_.get(), rank_socket(rank, node_), with_query(path, request.query), request};
  }

  [[nodiscard]] std::string list_of_ranks() const {
    std::string list;
    for (const std::int32_t rank : ranks()) {
      if (RankQuestion(directory_.get(), rank_socket(rank, node_), "/-/healthy", {}).is_refused())
        continue;
      list.append(list.empty() ? "" : ", ").append(std::to_string(rank));
    }
    return list.empty() ? "none" : list;
  }

  /// Absent if there is no such rank.
  std::optional<HttpResponse> of_rank(std::int32_t rank, const std::string& path,
                                      const HttpRequest& request) {
    std::vector<RankQuestion> question;
    question.push_back(ask(rank, path, request));
    if (question.front().is_refused()) return std::nullopt;
    wait_for(question, Clock::now() + patience_.usual);
    if (auto answer = question.front().take_answer()) return answer;
    return HttpResponse{.status = 504,
                        .body = "rank " + std::to_string(rank) + " does not answer\n"};
  }

  HttpResponse of_lowest(const HttpRequest& request) {
    for (const std::int32_t rank : ranks())
      if (auto answer = of_rank(rank, request.path, request)) return std::move(*answer);
    return {.status = 503, .body = "no rank of this run answers on this node\n"};
  }

  HttpResponse metrics(const HttpRequest& request) {
    std::vector<RankQuestion> prompt;
    std::vector<RankQuestion> silent;
    std::vector<std::pair<std::int32_t, bool>> asked;  // rank, and whether it is in `silent`
    for (const std::int32_t rank : ranks()) {
      RankQuestion question = ask(rank, request.path, request);
      if (question.is_refused()) continue;
      const auto misses = misses_.find(rank);
      const bool is_silent = misses != misses_.end() && misses->second % kPatientEvery != 0;
      asked.emplace_back(rank, is_silent);
      (is_silent ? silent : prompt).push_back(std::move(question));
    }
    const auto begin = Clock::now();
    wait_for(prompt, begin + patience_.usual);
    wait_for(silent, begin + patience_.of_silent);
    return merged(asked, prompt, silent, request);
  }

  HttpResponse merged(const std::vector<std::pair<std::int32_t, bool>>& asked,
                      std::vector<RankQuestion>& prompt, std::vector<RankQuestion>& silent,
                      const HttpRequest& request) {
    std::vector<HttpResponse> answers;
    std::map<std::int32_t, int> misses;
    auto next_prompt = prompt.begin();
    auto next_silent = silent.begin();
    for (const auto& [rank, is_silent] : asked) {
      auto answer = (is_silent ? next_silent++ : next_prompt++)->take_answer();
      if (!answer) misses[rank] = misses_[rank] + 1;
      if (answer && answer->status == 200) answers.push_back(std::move(*answer));
    }
    misses_ = std::move(misses);
    if (answers.empty()) return {.status = 503, .body = "no rank of this run answers here\n"};
    std::vector<std::string_view> parts;
    for (const HttpResponse& answer : answers) parts.emplace_back(answer.body);
    return {.content_type = std::string(content_type(negotiate(request.accept))),
            .body = merge_expositions(parts),
            .vary = "Accept, Accept-Encoding",
            .goes_first = true};
  }

  std::string node_;
  Patience patience_;
  OwnDescriptor directory_;
  std::map<std::int32_t, int> misses_;  ///< scrapes in a row that a rank did not answer
};

NodeEndpoint::NodeEndpoint(std::string node, Patience patience)
    : ranks_(std::make_shared<Ranks>(std::move(node), patience)) {}

EndpointStart NodeEndpoint::start(const EndpointOptions& options) noexcept try {
  if (const std::string error = ranks_->open(options.run_directory); !error.empty())
    return {.error = error};
  HttpServerOptions http = options.http;
  http.hosts = host_rule(options.address, options.host, options.allowed_hosts);
  http.otherwise = [ranks = ranks_](const HttpRequest& request) { return ranks->answer(request); };
  server_ = std::make_unique<HttpServer>(std::map<std::string, HttpHandler>(), std::move(http));
  HttpStart started = server_->start(options.address, options.port, options.port_tries);
  if (!started.error.empty()) return {.error = std::move(started.error)};
  return {.url = url_of(options, started.port), .port = started.port};
} catch (const std::exception& error) {
  return {.error = error.what()};
}

void NodeEndpoint::stop(std::chrono::milliseconds budget) noexcept {
  if (server_) server_->stop(budget);
}

bool NodeEndpoint::leave_if_closed() noexcept { return server_ && server_->leave_if_closed(); }

void NodeEndpoint::close_in_child() noexcept {
  if (server_) server_->close_in_child();
}

}  // namespace gradvane::exporters
