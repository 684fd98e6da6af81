package sandbox

import "context"

// SecretsDir is the directory of secrets for programs: a tmpfs with one file each.
const SecretsDir = "/run/secrets"

// SecretKeeper is a [Sandbox] that can give secrets to its programs.
type SecretKeeper interface {
	// KeepSecrets writes each value to the file of its name in SecretsDir before it returns. Programs (uid 1000) can
	// read the files, but change neither them nor their directory. It returns nil only if programs can read them.
	// Secrets that were given before stay. The error wraps ErrUnsupported if the image lacks the means. The values
	// never appear on a command line, in an environment or on a disk.
	KeepSecrets(ctx context.Context, values map[string][]byte) error
}
