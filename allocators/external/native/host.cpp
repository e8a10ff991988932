// The child process: speaks the line protocol (package external says how) over stdin and stdout, and hands the operations to a
// backend on the simulated GPU.
//
// The first process only waits for sessions. Each session runs in a fork of it, so that it finds the libraries loaded and
// everything else untouched, and so that its death is seen by the first process, which tells the signal.
//
// A session that is repeated must find the same memory, or an allocator that uses what it has freed fails otherwise each time: addresses
// are not random, and what depends on when bytes arrive (lines, replies) lies in buffers that are there from the beginning.
#include "backend.h"
#include "simgpu.h"
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unordered_map>

namespace {
int out_fd = 1;
std::string out;     // replies not written yet
size_t whole, sent;  // bytes of out: up to the end of the last whole reply, and those that were written
bool in_session;
volatile sig_atomic_t abandoned;  // nobody wants the replies to what was sent ahead

void flush() {
  while (sent < whole) {
    ssize_t k = write(out_fd, out.data() + sent, whole - sent);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) _exit(0);  // nobody reads any more
    sent += k;
  }
  out.erase(0, whole);
  whole = sent = 0;
}
void end_line() {
  out += '\n';
  whole = out.size();
}
// Replies to operations that were executed must not be lost when the next one kills the process. One that was begun is: the operation
// may be done, but what it came to cannot be told. Nothing is moved here, the heap may be in ruins.
void on_signal(int sig) {
  while (sent < whole) {
    ssize_t k = write(out_fd, out.data() + sent, whole - sent);
    if (k <= 0 && errno != EINTR) break;
    if (k > 0) sent += k;
  }
  signal(sig, SIG_DFL);
  raise(sig);
}
void on_abandon(int) { abandoned = 1; }
void on_exit_call() {  // the library called exit
  if (in_session) flush();
}
[[noreturn]] void give_up(const char* why) {
  out.resize(whole);
  out += "fatal ";
  for (const char* p = why; *p; ++p) out += *p == '\n' ? ' ' : *p;
  end_line();
  flush();
  _exit(97);
}

// Reads lines. The session's own begin behind the `start`: the first process reads no byte too many.
struct Input {
  char* buffer;
  size_t at, end, size;
  // Returns the next line, without its end, until the next call; null at the end of the input.
  char* line(bool ahead) {
    size_t looked = at;
    for (;;) {
      if (void* p = memchr(buffer + looked, '\n', end - looked)) {
        char* from = buffer + at;
        *(char*)p = 0;
        at = (char*)p + 1 - buffer;
        return from;
      }
      memmove(buffer, buffer + at, end - at);
      end -= at;
      at = 0;
      looked = end;
      if (end == size) give_up("a line is too long");
      flush();  // before waiting, answer
      ssize_t n;
      do n = read(0, buffer + end, ahead ? size - end : 1);
      while (n < 0 && errno == EINTR);
      if (n <= 0) return nullptr;
      end += n;
    }
  }
};
char lines[1 << 17];
Input in{lines, 0, 0, sizeof lines};

void put_number(std::string& to, uint64_t n, unsigned base) {
  char digits[24];
  char* p = digits + sizeof digits;
  do *--p = "0123456789abcdef"[n % base];
  while (n /= base);
  to.append(p, digits + sizeof digits - p);
}
void put_text(const char* key, const char* text) {  // always the last word of a line
  out += ' ';
  out += key;
  out += '=';
  for (; *text; ++text) {
    if (*text == '\n') out += "\\n";
    else if (*text == '\\') out += "\\\\";
    else out += *text;
  }
}

struct Live {
  enum State { REFUSED, LIVE } state;
  void* addr;
  size_t bytes;
  uint32_t stream;
};

uint64_t number_at(const char*& p) {
  while (*p == ' ') ++p;
  char* end;
  uint64_t n = strtoull(p, &end, 10);
  if (end == p) give_up("a number is missing in an operation");
  p = end;
  return n;
}
bool word_at(const char*& p, const char* word) {
  while (*p == ' ') ++p;
  size_t n = strlen(word);
  if (strncmp(p, word, n)) return false;
  p += n;
  return true;
}

// What the unchanged request would come to right now, asked in a fork that leaves no trace.
const char* retried(Backend* b, size_t bytes, uint32_t stream) {
  pid_t pid = fork();
  if (pid < 0) return nullptr;
  if (pid == 0) {
    for (int sig : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGTERM}) signal(sig, SIG_DFL);
    try {
      _exit(b->alloc(bytes, stream) ? 10 : 11);
    } catch (const Refused&) {
      _exit(11);
    } catch (...) {
      _exit(12);
    }
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status)) return nullptr;
  return WEXITSTATUS(status) == 10 ? "served" : WEXITSTATUS(status) == 11 ? "refused" : nullptr;
}

[[noreturn]] void session(Backend* b, const char* start) {
  in_session = true;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  static char stack[1 << 16];
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  for (int sig : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGTERM}) sigaction(sig, &action, nullptr);  // SIGTERM: the watchdog's
  action.sa_handler = on_abandon;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  atexit(on_exit_call);

  uint64_t capacity = 80ull << 30;
  bool has_fraction = false;
  double fraction = 0;
  const bool retry = strstr(start, "retry=yes");
  if (const char* p = strstr(start, "capacity=")) capacity = strtoull(p + 9, nullptr, 10);
  if (const char* p = strstr(start, "fraction=")) has_fraction = true, fraction = strtod(p + 9, nullptr);
  shatter_gpu_start(capacity);
  shatter_gpu_on_fatal(give_up);
  Words words{out};
  try {
    b->start(has_fraction, fraction);
    out += "ok pid=";
    put_number(out, getpid(), 10);
    b->full(words);
    size_t length;
    out += shatter_gpu_calls(&length);
    end_line();
  } catch (const std::exception& e) {
    out.resize(whole);
    out += "error";
    put_text("message", e.what());
    end_line();
    flush();
    _exit(0);
  }
  std::unordered_map<uint64_t, Live> live;
  while (const char* line = in.line(true)) {
    const char* p = line;
    if (abandoned && strcmp(line, "end")) continue;
    try {
      if (word_at(p, "alloc ")) {
        uint64_t id = number_at(p), bytes = number_at(p);
        uint32_t stream = word_at(p, "stream=") ? number_at(p) : 0;
        Live& l = live[id];
        l = {Live::REFUSED, nullptr, bytes, stream};
        int64_t before = b->allocated();
        try {
          l.addr = b->alloc(bytes, stream);
          l.state = Live::LIVE;
          out += "ok addr=";
          put_number(out, (uintptr_t)l.addr, 16);
          if (before >= 0) words.put("size", b->allocated() - before);
          b->brief(words);
        } catch (const Refused& e) {
          out += "oom";
          b->full(words);
          if (retry)
            if (const char* r = retried(b, bytes, stream)) out += " retry=", out += r;
          size_t length;
          const char* calls = shatter_gpu_calls(&length);
          out.append(calls, length);
          put_text("message", e.what());
        }
      } else if (word_at(p, "free ")) {
        auto it = live.find(number_at(p));
        if (it == live.end()) give_up("free of an id that is not live");
        Live l = it->second;
        live.erase(it);
        if (l.state == Live::REFUSED) {
          out += "skip";
        } else {
          b->free(l.addr, l.bytes, l.stream);
          out += "ok";
          b->brief(words);
        }
      } else if (word_at(p, "record ")) {
        auto it = live.find(number_at(p));
        uint32_t stream = word_at(p, "stream=") ? number_at(p) : 0;
        if (it == live.end()) give_up("record of an id that is not live");
        if (it->second.state == Live::REFUSED) {
          out += "skip";
        } else {
          if (it->second.addr) b->record(it->second.addr, stream);
          out += "ok";
          b->brief(words);
        }
      } else if (word_at(p, "sync")) {
        shatter_gpu_sync(word_at(p, "stream=") ? (int64_t)number_at(p) : -1);
        out += "ok";
      } else if (word_at(p, "pool begin ")) {
        uint32_t pool = number_at(p);
        int64_t stream = word_at(p, "stream=") ? (int64_t)number_at(p) : -1;
        b->pool_begin(pool, stream, word_at(p, "capture"));
        out += "ok";
        b->brief(words);
      } else if (word_at(p, "pool end ")) {
        b->pool_end(number_at(p));
        out += "ok";
        b->brief(words);
      } else if (word_at(p, "pool release ")) {
        b->pool_release(number_at(p));
        out += "ok";
        b->brief(words);
      } else if (word_at(p, "empty_cache pool=")) {
        b->empty_pool(number_at(p));
        out += "ok";
        b->full(words);
      } else if (word_at(p, "empty_cache")) {
        b->empty_cache();
        out += "ok";
        b->full(words);
      } else if (word_at(p, "stats")) {
        out += "ok";
        b->full(words);
      } else if (word_at(p, "conf ")) {
        b->configure(p);
        out += "ok";
        b->full(words);
      } else if (word_at(p, "fraction ")) {
        b->set_fraction(strtod(p, nullptr));
        out += "ok";
      } else if (word_at(p, "foreign ")) {
        out += shatter_gpu_foreign(number_at(p)) ? "ok" : "skip";
      } else if (word_at(p, "end")) {
        in_session = false;
        flush();
        _exit(0);
      } else {
        give_up((std::string("unknown operation: ") + line).c_str());
      }
      size_t length;
      const char* calls = shatter_gpu_calls(&length);
      out.append(calls, length);
    } catch (const std::exception& e) {
      out.resize(whole);
      out += "error";
      size_t length;
      const char* calls = shatter_gpu_calls(&length);
      out.append(calls, length);
      put_text("message", e.what());
    }
    end_line();
    if (whole > 1 << 16) flush();
  }
  flush();
  _exit(0);
}
}  // namespace

void Words::put(const char* key, int64_t value) {
  out += ' ';
  out += key;
  out += '=';
  if (value < 0) out += '-', value = -value;
  put_number(out, value, 10);
}

// Starts this program again with addresses that are not random. Where that is forbidden it goes on with what it has.
void fix_addresses(char** argv) {
  const char* done = "SHATTER_FIXED_ADDRESSES";
  int now = personality(0xffffffff);
  if (getenv(done) || now < 0 || now & ADDR_NO_RANDOMIZE || personality(now | ADDR_NO_RANDOMIZE) < 0) return;
  setenv(done, "1", 1);
  execv("/proc/self/exe", argv);
}

int main(int argc, char** argv) {
  fix_addresses(argv);
  signal(SIGPIPE, SIG_IGN);
  // What the library prints must not get among the replies.
  out_fd = dup(1);
  dup2(2, 1);
  out.reserve(1 << 20);
  std::string hello;
  Backend* b = make_backend(argc, argv, &hello);
  out = hello;
  end_line();
  flush();
  if (!b) return 2;
  while (const char* line = in.line(false)) {
    const char* p = line;
    if (!word_at(p, "start")) give_up((std::string("start expected, found: ") + line).c_str());
    pid_t pid = fork();
    if (pid < 0) give_up("fork failed");
    if (pid == 0) session(b, p);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    out += "done";
    if (WIFSIGNALED(status)) Words{out}.put("signal", WTERMSIG(status));
    else if (WEXITSTATUS(status)) Words{out}.put("exit", WEXITSTATUS(status));
    end_line();
    flush();
  }
  return 0;
}
