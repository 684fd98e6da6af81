package egress

import "github.com/wisbox/wisbox/egress/policy"

// noProxy lists the sandbox's own addresses for programs that read them; the proxy serves those of other programs. Each
// client has its own rules: only some know a network such as 127.0.0.0/8, and an address in brackets, which urllib
// needs, makes httpx fail at every request (docs/network.md has the table).
const noProxy = "localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1,::"

// Variables returns the environment variables with which programs use the proxy at a URL and trust a file of
// certificates inside the sandbox, which has the image's and the host's roots and those of [Proxy.Roots]. An
// injection's variable holds its placeholder.
func Variables(proxy, certificates string, p *policy.Policy) map[string]string {
	vars := map[string]string{"NODE_USE_ENV_PROXY": "1"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		vars[name] = proxy
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		vars[name] = noProxy
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
		"npm_config_cafile", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "PERL_LWP_SSL_CA_FILE",
	} {
		vars[name] = certificates
	}
	for _, i := range p.Injections() {
		if i.Env != "" {
			vars[i.Env] = i.Placeholder()
		}
	}
	return vars
}

// SettingsFile is a file for programs that have no variable for certificates, only for a file with their settings.
type SettingsFile struct {
	Variable string // holds its path
	Name     string
	Text     string
}

// SettingsFiles returns the files that make programs trust a file of certificates inside the sandbox.
func SettingsFiles(certificates string) []SettingsFile {
	return []SettingsFile{
		{"SYSTEM_WGETRC", "wisbox-wgetrc", "ca_certificate = " + certificates + "\n"},
		{"APT_CONFIG", "wisbox-apt.conf", `Acquire::https::CAInfo "` + certificates + "\";\n"},
	}
}
