package door

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/sandbox"
)

const rootsPath = sandbox.SecretsDir + "/" + box.RootsName

// maxRoots is the maximum size of the file in bytes. It is in the megabyte of memory for secrets,
// twice while it is replaced.
const maxRoots = 400 << 10

// bundles are the paths of systems' certificates.
var bundles = []string{
	"/etc/ssl/certs/ca-certificates.crt", // Debian, Alpine, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",   // Fedora, RHEL
	"/etc/ssl/ca-bundle.pem",             // openSUSE
	"/etc/ssl/cert.pem",                  // others
}

// giveRoots writes the certificates that programs should trust, and returns the path, or "" if
// there are none. The caller must hold mu.
func (d *Door) giveRoots(ctx context.Context) (path string, err error) {
	own := d.proxy.Roots()
	if d.given != nil && bytes.Contains(d.given, own) {
		return pathOf(d.given), nil
	}
	all := joined(own, HostRoots(), imageRoots(ctx, d.at))
	if len(all) > 0 {
		keeper, ok := sandbox.As[sandbox.SecretKeeper](d.at)
		if !ok {
			return "", fmt.Errorf("%w: this backend can't hand over certificates", sandbox.ErrUnsupported)
		}
		files := map[string][]byte{box.RootsName: all}
		for _, f := range egress.SettingsFiles(rootsPath) {
			files[f.Name] = []byte(f.Text)
		}
		if err := keeper.KeepSecrets(ctx, files); err != nil {
			return "", err
		}
	}
	d.given = append([]byte{}, all...)
	return pathOf(all), nil
}

func pathOf(roots []byte) string {
	if len(roots) == 0 {
		return ""
	}
	return rootsPath
}

// HostRoots returns the root certificates that this machine trusts, including a company's.
func HostRoots() []byte {
	for _, path := range append([]string{os.Getenv("SSL_CERT_FILE")}, bundles...) {
		if raw, err := os.ReadFile(path); err == nil && len(raw) > 0 {
			return raw
		}
	}
	return nil
}

// imageRoots returns the root certificates of the image, as its programs read them.
func imageRoots(ctx context.Context, sb sandbox.Sandbox) []byte {
	var out bytes.Buffer
	_, err := sb.Run(ctx, sandbox.Cmd{
		Argv: append([]string{"cat"}, bundles...), Stdout: &out, Timeout: prepareTimeout, Capture: &sandbox.Capture{Forward: 4 * maxRoots},
	})
	if err != nil {
		return nil
	}
	return out.Bytes()
}

// joined returns the certificates of all files, without duplicates, as many as fit.
func joined(all ...[]byte) []byte {
	var out []byte
	seen := map[[sha256.Size]byte]bool{}
	for _, rest := range all {
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			sum := sha256.Sum256(block.Bytes)
			if block.Type != "CERTIFICATE" || seen[sum] {
				continue
			}
			seen[sum] = true
			if one := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}); len(out)+len(one) <= maxRoots {
				out = append(out, one...)
			}
		}
	}
	return out
}
