package policy

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Access restricts requests to some methods on some paths.
type Access struct {
	// Methods that are permitted; nil for all.
	Methods []string
	// Prefix is the beginning of the path, e.g. "/v1/"; "/v1" means that path and those below it.
	Prefix string
	// Suffix is its end.
	Suffix string
}

var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

func parseAccess(methods, path string) (Access, error) {
	var a Access
	if methods != "" {
		for m := range strings.SplitSeq(methods, "|") {
			if !slices.Contains(knownMethods, m) {
				return a, fmt.Errorf("method %q: unknown method; the methods are %s, joined by |", m, strings.Join(knownMethods, ", "))
			}
			a.Methods = append(a.Methods, m)
		}
	}
	if end, found := strings.CutPrefix(path, "*"); found {
		a.Suffix, path = end, end
	} else {
		a.Prefix = path
	}
	if path != "" && (!strings.HasPrefix(path, "/") || normal(&url.URL{Path: path}, path) != nil) {
		return a, fmt.Errorf("path %q: it isn't a plain path; write it as /v1/", path)
	}
	return a, nil
}

// anyPath reports whether the path doesn't matter.
func (a Access) anyPath() bool { return (a.Prefix == "" || a.Prefix == "/") && a.Suffix == "" }

func (a Access) anything() bool { return a.anyPath() && a.Methods == nil }

func (a Access) permits(method, path string) bool {
	if a.Methods != nil && !slices.Contains(a.Methods, method) {
		return false
	}
	if !strings.HasSuffix(path, a.Suffix) {
		return false
	}
	rest, found := strings.CutPrefix(path, a.Prefix)
	return found && (rest == "" || a.Prefix == "" || strings.HasSuffix(a.Prefix, "/") || rest[0] == '/')
}

// permits returns an error if a request is within none of the accesses. Without accesses everything is permitted.
func permits(all []Access, method string, u *url.URL) error {
	if len(all) == 0 {
		return nil
	}
	if slices.ContainsFunc(all, func(a Access) bool { return !a.anyPath() }) {
		if err := normal(u, u.EscapedPath()); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(all, func(a Access) bool { return a.permits(method, u.Path) }) {
		return nil
	}
	var may []string
	for _, a := range all {
		may = append(may, a.String())
	}
	return fmt.Errorf("the rule permits only %s", strings.Join(may, ", "))
}

// normal refuses a path that a server might interpret differently.
func normal(u *url.URL, escaped string) error {
	lower := strings.ToLower(escaped)
	for _, odd := range []string{"%2e", "%2f", "%5c", "%25", "%00", "\\", ";", "//"} {
		if strings.Contains(lower, odd) {
			return fmt.Errorf("the path has %q in it, which servers read in different ways", odd)
		}
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment != "" && strings.Trim(segment, ". ") == "" {
			return errors.New("the path has . or .. in it")
		}
	}
	if !utf8.ValidString(u.Path) || strings.ContainsFunc(u.Path, odd) {
		return errors.New("the path has bytes or characters in it that servers read in different ways")
	}
	return nil
}

// likeSlashes are characters that some servers take for a slash or a backslash, though Unicode doesn't say they are the same.
const likeSlashes = "⁄∕∖⟋⟍⧵⧸⧹╱╲"

// odd reports whether a server may take a character for another one, such as the wide forms of . and / for these, or
// ignore it, such as a soft hyphen between two dots.
func odd(r rune) bool {
	if r < utf8.RuneSelf {
		return unicode.IsControl(r)
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) ||
		strings.ContainsRune(likeSlashes, r) || strings.ContainsAny(norm.NFKC.String(string(r)), `./\;%`)
}

// methodParams are parameters of a query from which some servers take another method than the request's, in lower case.
var methodParams = []string{"_method", "x-http-method", "x-http-method-override", "x-method-override"}

// plainQuery refuses a query that may name another method.
func plainQuery(query string) error {
	for _, param := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(param, "=")
		if plain, err := url.QueryUnescape(name); err == nil && slices.Contains(methodParams, strings.ToLower(plain)) {
			return fmt.Errorf("the query has %s, which names another method for some servers", plain)
		}
	}
	return nil
}

func (a Access) String() string {
	methods := strings.Join(a.Methods, "|")
	if methods == "" {
		methods = "any method"
	}
	path := a.Prefix
	if a.Suffix != "" {
		path += "*" + a.Suffix
	}
	if path == "" {
		path = "/"
	}
	return methods + " " + path
}
