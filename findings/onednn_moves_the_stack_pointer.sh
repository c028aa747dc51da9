#!/usr/bin/env bash
# oneDNN 3.2.0 and 3.13.2: while a small f32 product is computed, the stack pointer
# is in oneDNN's workspace on the heap and not in the thread's stack.
#
# Behaviour: the kernel that jit_avx_gemm_f32 generates loads rsp with the address
# of a workspace, where its products of packed columns lie, and restores it at its
# end. Nothing goes wrong until a signal comes: without SA_ONSTACK the kernel of the
# operating system writes the handler's frame (1 to 4 KB with AVX) below rsp, which
# is whatever lies before the workspace on the heap. An empty handler of SIGALRM,
# SIGUSR1 or SIGINT (Python's, too) is enough. The documentation names no such rule.
# A program has to block signals in threads that compute, or to give each of them a
# stack for signals (sigaltstack), which OpenMP's worker threads do not have.
# Here the handler has one, and only looks where rsp was.
#
# Output seen (Debian 12, AMD Zen 3, ONEDNN_MAX_CPU_ISA=AVX2, one thread):
#   oneDNN 3.2.0, 256x50x512: rsp in the thread's stack 212 times, elsewhere 1788 times
#   oneDNN 3.2.0, 256x256x256: rsp in the thread's stack 162 times, elsewhere 1840 times
#   oneDNN 3.2.0, 1024x1024x1024: rsp in the thread's stack 2113 times, elsewhere 0 times
#   oneDNN 3.13.2, 256x50x512: rsp in the thread's stack 1946 times, elsewhere 54 times
#   oneDNN 3.13.2, 256x256x256: rsp in the thread's stack 1985 times, elsewhere 15 times
#   oneDNN 3.13.2, 1024x1024x1024: rsp in the thread's stack 1935 times, elsewhere 115 times
# In 3.2.0 large products take another kernel.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/gemm.c" <<'C'
#define _GNU_SOURCE
#include <dnnl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <ucontext.h>

static char *low, *high, handler_stack[65536];
static volatile long inside, elsewhere;

static void look(int signal, siginfo_t *info, void *context) {
  char *rsp = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RSP];
  if (rsp >= low && rsp < high) ++inside; else ++elsewhere;
}

static void multiply(int m, int n, int k) {
  float *a = calloc(m * k, 4), *b = calloc(k * n, 4), *c = calloc(m * n, 4);
  inside = elsewhere = 0;
  while (inside + elsewhere < 2000)
    dnnl_sgemm('N', 'N', m, n, k, 1, a, k, b, n, 0, c, n);
  const dnnl_version_t *v = dnnl_version();
  printf("oneDNN %d.%d.%d, %dx%dx%d: rsp in the thread's stack %ld times, elsewhere %ld times\n",
         v->major, v->minor, v->patch, m, n, k, inside, elsewhere);
}

int main(void) {
  pthread_attr_t attributes;
  size_t size;
  void *base;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &base, &size);
  low = base, high = low + size;
  stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
  sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_sigaction = look,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  struct itimerval timer = {{0, 200}, {0, 200}};
  setitimer(ITIMER_REAL, &timer, NULL);
  multiply(256, 50, 512);
  const int is_found = elsewhere > 0;
  multiply(256, 256, 256);
  multiply(1024, 1024, 1024);
  return is_found ? 0 : 1;
}
C
for package in onednn-devel-cpu-gomp==2023.2.0 onednn-devel==2026.1.0; do
  python3 -m venv "$folder/$package"
  "$folder/$package/bin/pip" install -q "$package"
  gcc -O1 "$folder/gemm.c" -I"$folder/$package/include" -L"$folder/$package/lib" -ldnnl -lpthread \
    -Wl,-rpath,"$folder/$package/lib" -Wl,--unresolved-symbols=ignore-in-shared-libs -o "$folder/gemm"
  OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX2 LD_LIBRARY_PATH="$folder/$package/lib" "$folder/gemm"
done
