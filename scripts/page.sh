#!/bin/bash
# Makes page/assets of page/web: checks the types, bundles, and copies the licences of what is
# bundled. With --check it changes nothing, and says what differs. Needs npm, for packages
# whose exact versions and hashes page/web/package-lock.json has; no script of theirs runs.
set -euo pipefail
cd "$(dirname "$0")/.."

work=.cache/page
mkdir -p "$work"
cp page/web/package.json page/web/package-lock.json page/web/tsconfig.json "$work/"
rm -rf "$work/src" "$work/made"
cp -r page/web/src "$work/src"
mkdir "$work/made"
sum=$(sha256sum <"$work/package-lock.json")
if [ "$sum" != "$(cat "$work/installed" 2>/dev/null)" ]; then
    (cd "$work" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    echo "$sum" >"$work/installed"
fi

# Both are programs for this machine, which need no Node.js.
case $(uname -m) in
x86_64) machine=x64 ;;
aarch64) machine=arm64 ;;
*) echo "page: no compiler for $(uname -m); use x86_64 or aarch64" >&2 && exit 1 ;;
esac
packages=$work/node_modules
"$packages/@typescript/typescript-linux-$machine/lib/tsc" -p "$work"
"$packages/@esbuild/linux-$machine/bin/esbuild" "$work/src/main.ts" "$work/src/page.css" --bundle --minify --target=es2022 \
    --format=iife --charset=utf8 --legal-comments=none --entry-names='[name]' --outdir="$work/made" --log-level=warning
mv "$work/made/main.js" "$work/made/page.js"
cp page/web/index.html page/web/icon.svg "$work/made/"
for name in xterm addon-fit; do
    printf '@xterm/%s\n\n' "$name" && cat "$packages/@xterm/$name/LICENSE" && echo
done >"$work/made/LICENSES.txt"

if [ "${1-}" = --check ]; then
    diff -rq "$work/made" page/assets || { echo "page: page/assets is not what page/web gives; run make page and commit what it changes" >&2 && exit 1; }
    exit 0
fi
rm -rf page/assets
cp -r "$work/made" page/assets
