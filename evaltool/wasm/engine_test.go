package wasm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wisbox/wisbox/evaltool"
)

func TestTry(t *testing.T) {
	e := engine(t)
	for _, code := range []string{"1+1", "1+1", "1+1", "print('hi'); x={'a':[1]}", "1/0", "def f(n): return f(n+1)\nf(0)", "x=bytearray(600<<20)", "import time\ntime.sleep(0.2)\ntime.time()",
		"import os\nsorted(os.environ), os.getcwd(), os.listdir('/'), os.listdir('.')", "open('a','w').write('x'); open('a').read()", "import subprocess\nsubprocess.run(['true'])", "import asyncio\nawait asyncio.sleep(0.01)\n7",
		"import os; os._exit(9)", "input()", "import socket", "import threading\nthreading.Thread(target=print).start()", "import random\nrandom.random(), hash('a')", "import os\nos.urandom(4), __import__('uuid').uuid4()", "10**10000000", "import re\nre.match('(a+)+$', 'a'*40+'b')", "while True: pass",
		"read_text('a')", "import fcntl", "import signal\nsignal.signal(2, print)", "import sys\nsys.path, sys.stdin.read()", "help(len)", "import json, re, csv, datetime, decimal, math, random, string, statistics, itertools, functools, collections, textwrap, difflib, hashlib, base64, uuid, html, struct, zlib, heapq\n5", "class A:\n def _repr_svg_(s): return '<svg/>'\nA()", "import tempfile\nwith tempfile.TemporaryDirectory() as d:\n open(d+'/x','w').write('y')\nd", "exit(3)", "list_files('/')",
	        "[0]*(10**8)"} {
		t0 := time.Now()
		r := evaluate(t, e, evaltool.Request{Code: code})
		v := "nil"
		if r.Value != nil {
			v = *r.Value
		}
		fmt.Printf("%-50.50q %v %s ended=%v v=%s out=%q err=%.300q notes=%q g=%v\n", code, time.Since(t0).Round(time.Microsecond*100), r.Status, r.Ended, v, r.Stdout, r.Stderr, r.Notes, r.Globals)
	}
}
