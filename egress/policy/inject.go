package policy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// Injection adds a secret to the requests to one host, outside of the sandbox:
//
//	HOST:HEADER=[SCHEME ]SECRET[,methods=GET|HEAD][,path=/v1/][,env=NAME][,alone=yes]
//
// The request's HEADER is set to the value of the secret of that name, after SCHEME and a space if there is one.
// Methods and path say which requests get it. If every injection of the host has some, they also restrict all requests
// of programs to the host. NAME is a variable that holds the placeholder. With alone=yes these requests have no other credential that a program
// added: it can't use the host as somebody else, such as an account to which it would send data.
type Injection struct {
	Host   string
	Header string
	// Scheme precedes the value, e.g. Bearer.
	Scheme string
	// Secret is the name of the secret, not its value.
	Secret string
	Access Access
	// Env is the variable with the placeholder; "" for none.
	Env string
	// Alone drops other credentials from these requests, see [Injection.DropOthers].
	Alone bool
}

// Placeholder returns the value that programs send in place of the secret if they require one. It is not a secret.
func (i Injection) Placeholder() string { return "wisbox-placeholder-" + i.Secret }

// String returns the injection in its canonical form.
func (i Injection) String() string {
	text := i.Host + ":" + i.Header + "="
	if i.Scheme != "" {
		text += i.Scheme + " "
	}
	text += i.Secret
	if i.Access.Methods != nil {
		text += ",methods=" + strings.Join(i.Access.Methods, "|")
	}
	if i.Access.Prefix != "" {
		text += ",path=" + i.Access.Prefix
	}
	if i.Env != "" {
		text += ",env=" + i.Env
	}
	if i.Alone {
		text += ",alone=yes"
	}
	return text
}

// Headers and parameters in which APIs take credentials, in lower case.
var (
	credentialHeaders = []string{
		"authorization", "cookie", "api-key", "apikey", "x-api-key", "x-goog-api-key", "x-auth-token", "x-access-token", "x-amz-security-token",
		"x-goog-iam-authorization-token", "x-serverless-authorization", "ocp-apim-subscription-key",
	}
	credentialParams = []string{
		"key", "api_key", "api-key", "apikey", "access_token", "token", "auth_token", "oauth_token", "bearer_token", "subscription-key", "x-goog-signature", "x-goog-credential", "googleaccessid", "upload_id", "x-amz-signature", "x-amz-security-token",
		"httpheaders", "httpmethod", // Google's ways to put headers and the method into the query
	}
)

// DropOthers removes credentials from a request's headers and query, before the secret is added, if i is Alone. A server may know other
// names for them.
func (i Injection) DropOthers(h http.Header, u *url.URL) {
	if !i.Alone {
		return
	}
	for name := range h {
		lower := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		known := slices.Contains(credentialHeaders, lower) && lower != strings.ToLower(i.Header)
		if known || lower == "sec-websocket-protocol" && strings.Contains(strings.ToLower(strings.Join(h[name], ",")), "key") { // as OpenAI's
			delete(h, name)
		}
	}
	var kept []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if !slices.ContainsFunc(strings.Split(pair, ";"), isCredential) { // some servers split there
			kept = append(kept, pair)
		}
	}
	u.RawQuery = strings.Join(kept, "&")
}

// isCredential reports whether a parameter of a query is one, or can't be read.
func isCredential(param string) bool {
	name, _, _ := strings.Cut(param, "=")
	plain, err := url.QueryUnescape(name)
	return err != nil || slices.Contains(credentialParams, strings.TrimPrefix(strings.ToLower(plain), "$")) // $key is key for Google
}

var (
	secretName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}$`) })
	envName    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`) })
)

// ours lists the headers of the connection between the proxy and the server, and those that name the server.
var ours = []string{
	"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
}

// ParseInjection parses an injection.
func ParseInjection(text string) (Injection, error) {
	i, err := parseInjection(text)
	if err != nil {
		return Injection{}, fmt.Errorf("inject %q: %w", text, err)
	}
	return i, nil
}

func parseInjection(text string) (i Injection, err error) {
	if len(text) > maxText {
		return i, fmt.Errorf("it is longer than %d characters; use a shorter path", maxText)
	}
	host, rest, found := strings.Cut(text, ":")
	if !found {
		return i, errors.New("the header is missing; write HOST:HEADER=SECRET")
	}
	if strings.HasPrefix(host, "*") {
		return i, errors.New("a secret goes to one host; name it without *")
	}
	if i.Host, err = ruleName(host); err != nil {
		return i, fmt.Errorf("host %q: %w", host, err)
	}
	rest, options, hasOptions := strings.Cut(rest, ",")
	if err := i.parseHeader(rest); err != nil {
		return i, err
	}
	if !hasOptions {
		return i, nil
	}
	return i, i.parseOptions(options)
}

func (i *Injection) parseHeader(text string) error {
	header, value, found := strings.Cut(text, "=")
	if !found {
		return errors.New("the secret is missing; write HOST:HEADER=SECRET")
	}
	lower := strings.ToLower(header)
	switch {
	case !httpguts.ValidHeaderFieldName(header):
		return fmt.Errorf("%q is not a header; write HOST:HEADER=SECRET", header)
	case slices.Contains(ours, lower), strings.HasPrefix(lower, "proxy-"):
		return fmt.Errorf("the header %s is the connection's; use another header for a secret", header)
	}
	i.Header, i.Secret = header, value
	if scheme, name, found := strings.Cut(value, " "); found {
		if !httpguts.ValidHeaderFieldName(scheme) {
			return fmt.Errorf("%q is not a scheme; write HEADER=Bearer SECRET", scheme)
		}
		i.Scheme, i.Secret = scheme, name
	}
	if !secretName().MatchString(i.Secret) {
		return fmt.Errorf("%q is not a name of a secret; write the name, not the value", i.Secret)
	}
	return nil
}

func (i *Injection) parseOptions(text string) error {
	seen := map[string]bool{}
	var methods, path string
	for option := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(option, "=")
		if seen[key] {
			return fmt.Errorf("%s is given twice; give it once", key)
		}
		seen[key] = true
		if value == "" {
			return fmt.Errorf("%q has no value; write KEY=VALUE", option)
		}
		switch key {
		case "methods":
			methods = value
		case "path":
			if path = value; path[0] != '/' {
				return fmt.Errorf("path %q: it isn't a plain path; write it as /v1/", path)
			}
		case "env":
			if i.Env = value; !envName().MatchString(value) {
				return fmt.Errorf("%q is not a name of a variable; write env=NAME", value)
			}
		case "alone":
			if i.Alone = value == "yes"; !i.Alone {
				return fmt.Errorf("alone=%s: write alone=yes, or leave it out", value)
			}
		default:
			return fmt.Errorf("%q is unknown; write methods=, path=, env= or alone=", key)
		}
	}
	var err error
	i.Access, err = parseAccess(methods, path)
	return err
}
