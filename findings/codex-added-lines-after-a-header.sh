#!/bin/bash
# Codex 0.171.0 (npm: @openai/codex), its apply_patch.
#
# What one would guess: a chunk of an update begins with @@ and a line of the file, which says where the chunk belongs. So
# lines that are only added come after that line, whether a context line stands beside them or not.
#
# What happens: with a context line they come there. Without one they come at the end of the file, and the line after @@
# only has to exist: if it doesn't, the patch fails.
#
# Output seen (the chunk below @@ def f():, the file with its lines joined):
EXPECTED="\
context and addition: def f(): /     new() /     old() / def g(): /     pass
addition alone:       def f(): /     old() / def g(): /     pass /     new()
no such line:         refused"
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
npm install --silent --no-audit --no-fund --prefix . @openai/codex@0.171.0 >/dev/null
codex=$(echo "$dir"/node_modules/@openai/codex-*/vendor/*/bin/codex)
patched() {
    printf 'def f():\n    old()\ndef g():\n    pass\n' >f.py
    "$codex" --codex-run-as-apply-patch "*** Begin Patch
*** Update File: f.py
$1
*** End Patch" >/dev/null 2>&1 || { echo refused; return; }
    sed ':a;N;$!ba;s|\n| / |g' f.py
}
seen="\
context and addition: $(patched $'@@ def f():\n+    new()\n     old()')
addition alone:       $(patched $'@@ def f():\n+    new()')
no such line:         $(patched $'@@ def h():\n+    new()')"
[ "$seen" = "$EXPECTED" ] || { echo "it changed:"; diff <(echo "$EXPECTED") <(echo "$seen"); exit 1; }
echo "$seen"
