#!/bin/sh
# Checks the model of the rlm protocol with spin (Debian: spin, gcc): that runs
# terminate, that the bounds hold, and that nothing deadlocks.
set -eu
model=$(cd "$(dirname "$0")" && pwd)/rlm.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cp "$model" .
spin -a rlm.pml >spin.log || { cat spin.log; exit 1; }

check() {
	name=$1
	shift
	./pan -m1000000 "$@" >out
	grep -q 'errors: 0' out || { cat out; exit 1; }
	echo "$name: $(grep -m1 'states, stored' out | tr -s ' ')"
}

gcc -O2 -w -o pan pan.c
check terminates -a -f -N terminates
check bounded -a -N bounded
gcc -O2 -w -DSAFETY -DNOCLAIM -o pan pan.c
check 'no deadlock, no failed assertion'
