package sandbox

import "context"

// SecretsDir is where programs find secrets: a tmpfs, one file each.
const SecretsDir = "/run/secrets"

// SecretKeeper is a [Sandbox] that can hand secrets to its programs.
type SecretKeeper interface {
	// KeepSecrets makes each value the content of the file of its name in
	// SecretsDir, which programs (uid 1000) may read and in no way change, nor their
	// directory, before it returns. It returns nil only if a program finds them. Others
	// that were given before stay. It wraps ErrUnsupported where the image lacks
	// what it takes. The values go over no command line, environment or disk.
	KeepSecrets(ctx context.Context, values map[string][]byte) error
}
