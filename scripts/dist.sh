#!/bin/bash
# Makes dist/: static binaries for Linux, clients for macOS, their SBOMs, packages and checksums. The same
# commit gives the same bytes with the same Go: times are the commit's, and nothing of
# this machine goes in. make dist calls it, which sets how Go builds.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# tool PACKAGE VERSION builds a program of others into .cache, once. A module that
# requires it works over proxies that have no list of its versions; go install doesn't.
tool() {
    local out=$PWD/.cache/${1##*/}-$2 module=${1%%/cmd/*}
    [ -x "$out" ] || (
        mkdir -p "$stage/tool" && cd "$stage/tool" && rm -f go.mod go.sum && export GOFLAGS=-mod=mod
        go mod init tool && go mod edit -require="$module@$2"
        go build -trimpath -buildvcs=false -o "$out" "$1"
    ) >&2
    echo "$out"
}

# package_version turns what git describe says into a version that Debian and RPM take and
# sort: 1.2.3, 1.2.3~rc.1, 1.2.3+5.gabcdef, and without a tag 0~20060102150405.gabcdef.
package_version() {
    local v=${1#v} after=
    [[ $v != *-dirty ]] || { v=${v%-dirty} after=.dirty; }
    if [[ $v =~ ^(.*)-([0-9]+)-(g[0-9a-f]+)$ ]]; then
        v=${BASH_REMATCH[1]} after=+${BASH_REMATCH[2]}.${BASH_REMATCH[3]}$after
    fi
    if [[ $v =~ ^[0-9]+\.[0-9] ]]; then
        v=${v/-/"~"} v=${v//-/.} after=${after/#./+}
    else
        v=0~$(date -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).g$v
    fi
    echo "$v$after"
}

# licences has the terms of everything that the binary links.
licences() {
    local module dir
    go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}	{{.Dir}}{{end}}{{end}}' -tags="$tags" ./cmd/wisbox | sort -u | while IFS=$'\t' read -r module dir; do
        printf '\n=== %s\n\n' "$module"
        find "$dir" -maxdepth 1 -type f -iregex '.*/\(licen[cs]e\|copying\|notice\)[^/]*' | sort | xargs -r -d '\n' cat
    done
    printf '\n=== Go and its standard library\n\n'
    cat "$(go env GOROOT)/LICENSE"
    printf '\n=== podman/seccomp.json\n\n'
    cat podman/seccomp.NOTICE
}

tags=$(go env GOFLAGS | grep -o -- '-tags=[^ ]*' | cut -d= -f2),kubernetes # everything in one file
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
PACKAGE_VERSION=$(package_version "$VERSION")
export PACKAGE_VERSION STAGE="$stage"
nfpm=$(tool github.com/goreleaser/nfpm/v2/cmd/nfpm v2.43.4)
cyclonedx=$(tool github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod v1.10.0)

rm -rf dist
share=$stage/share
mkdir -p dist "$share"/{man/man1,bash-completion/completions,fish/vendor_completions.d,doc/wisbox}
env -u WISBOX_ISOLATION WISBOX_MAN="$share/man/man1" go test -count=1 -run '^TestManPages$' ./cmd/wisbox
gzip -9n "$share"/man/man1/*
bin/wisbox completion bash >"$share/bash-completion/completions/wisbox"
bin/wisbox completion fish >"$share/fish/vendor_completions.d/wisbox.fish"
bin/wisbox completion zsh >"$stage/_wisbox"
cp packaging/wisbox-serve.service "$stage"
git ls-files -z docs ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md README.md SECURITY.md | xargs -0 cp --parents -t "$share/doc/wisbox"
licences | cat LICENSE - >"$share/doc/wisbox/copyright"
cp "$share/doc/wisbox/copyright" "dist/wisbox-$VERSION-licences.txt"

# engine SYSTEM ARCH OUT [TAGS] builds the program that does everything.
engine() { GOOS=$1 GOARCH=$2 go build -trimpath ${4:+"-tags=$4"} -ldflags "$GO_LDFLAGS" -o "$3" ./cmd/wisbox; }

# program ARCH ENGINE OUT makes the program for Linux: the small one in front, with that engine in it.
program() {
    GOOS=linux GOARCH=$1 go build -trimpath -ldflags "$GO_LDFLAGS" -o "$stage/front" ./cmd/wisbox/front
    go run ./cmd/wisbox/internal/engine/pack "$stage/front" "$2" .cache/wisbox-pages "$3"
    rm "$stage/front"
}

# sbom BINARY OUT writes what a binary has linked.
sbom() {
    GOPROXY=off "$cyclonedx" bin -json -std -licenses -assert-licenses -noserial -notimestamp \
        -version "$VERSION" -output "$2" "$1" >/dev/null 2>"$stage/sbom.log" || { cat "$stage/sbom.log" >&2; exit 1; }
}

for arch in amd64 arm64; do
    mac=dist/wisbox-$VERSION-darwin-$arch linux=dist/wisbox-$VERSION-linux-$arch # each needs no other files
    engine darwin "$arch" "$mac" "$tags"
    sbom "$mac" "$mac.cdx.json"
    engine linux "$arch" "$stage/wisbox-kube" "$tags"
    sbom "$stage/wisbox-kube" "$linux.cdx.json"
    program "$arch" "$stage/wisbox-kube" "$linux"
    engine linux "$arch" "$stage/engine"
    program "$arch" "$stage/engine" "$stage/wisbox"
    rm "$stage/engine"
    chmod -R u=rwX,go=rX "$stage"
    find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    for packager in deb rpm; do
        GOARCH=$arch "$nfpm" package -f packaging/nfpm.yaml -p "$packager" -t dist
    done
done
cd dist
sha256sum -- * >"$stage/SHA256SUMS"
mv "$stage/SHA256SUMS" .
ls -l
