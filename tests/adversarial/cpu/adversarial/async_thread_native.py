"""A pthread of a library built by hand, detached, computes after the call."""
# problem: chain
# expect: uncredited
# reasons: late, wrong
# ruff: noqa

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = """
#include <pthread.h>
#include <stdint.h>
typedef void (*job)(int64_t);
struct order { job f; int64_t n; };
#include <stdlib.h>
static void *run(void *p) { struct order *o = p; o->f(o->n); free(o); return 0; }
void start(job f, int64_t n) {
    struct order *o = malloc(sizeof *o); o->f = f; o->n = n;
    pthread_t t; pthread_create(&t, 0, run, o); pthread_detach(t);
}
"""
FOLDER = tempfile.mkdtemp()
with open(os.path.join(FOLDER, "x.c"), "w") as file:
    file.write(SOURCE)
subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", FOLDER + "/x.so", FOLDER + "/x.c", "-lpthread"], check=True)
LIBRARY = ctypes.CDLL(FOLDER + "/x.so")
LIBRARY.start.argtypes = [ctypes.c_void_p, ctypes.c_int64]
JOBS = []


@ctypes.CFUNCTYPE(None, ctypes.c_int64)
def _job(number):
    with torch.no_grad():
        model, x, out = JOBS[number]
        out.copy_(model.norm(torch.tanh(model.b(torch.relu(model.a(x))))))


CALLBACK = ctypes.cast(_job, ctypes.c_void_p)


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(n, n), nn.Linear(n, n), nn.LayerNorm(n)
        self.jobs = []

    def forward(self, x):
        out = torch.empty_like(x)
        self.jobs.append((x, out))
        LIBRARY.start(CALLBACK, len(JOBS))
        JOBS.append((self, x, out))
        return out
