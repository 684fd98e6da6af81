package egress

import "github.com/wisbox/wisbox/egress/policy"

// Variables returns the environment variables with which programs use the proxy at a URL and trust a file of
// certificates inside the sandbox, which has the image's and the host's roots and those of [Proxy.Roots]. An
// injection's variable holds its placeholder.
func Variables(proxy, certificates string, p *policy.Policy) map[string]string {
	vars := map[string]string{"NODE_USE_ENV_PROXY": "1"}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		vars[name] = proxy
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		vars[name] = "localhost,127.0.0.1,::1"
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
		"npm_config_cafile", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT",
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
