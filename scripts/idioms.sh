#!/bin/bash
# Finds idioms of .idioms in comments, help, errors and docs.
set -euo pipefail
cd "$(dirname "$0")/.."
found=0
while IFS=$'\t' read -r idiom instead files; do
    [[ $idiom = \#* ]] && continue
    read -ra paths <<<"${files:-.}"
    git grep -nPI -e "$idiom" -- "${paths[@]}" ':!.idioms' ':!docs/adr' ':!CHANGELOG.md' ':!integration/testdata/cases' ':!*package-lock.json' ':!page/assets' || continue
    echo "  write instead: $instead" >&2
    found=1
done <.idioms
exit $found
