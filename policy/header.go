package policy

import (
	"net/http"
	"net/textproto"
	"strings"

	"github.com/listproxy/listproxy/policy/reason"
)

// impersonatePrefix begins the name of every header that asks to act as another.
// Kubernetes adds new ones (Impersonate-Uid was one), and an HTTP server may read an underscore as
// a dash, so every name that begins like this counts.
const impersonatePrefix = "impersonate"

// NamesImpersonation reports whether a header of this name asks to act as another.
func NamesImpersonation(name string) bool {
	return len(name) >= len(impersonatePrefix) && strings.EqualFold(name[:len(impersonatePrefix)], impersonatePrefix)
}

// checkFraming makes sure that the request consists only of its line and its headers, and that each
// header can be read in one way only. Headers that the API server ignores on lists (Range,
// If-None-Match and their like) are ignored.
func checkFraming(r *http.Request) reason.Reason {
	// A ContentLength of -1 is a body of unknown length.
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return reason.NotCanonical
	}
	if has(r.Header, "Upgrade") || !isPlainConnection(r.Header["Connection"]) {
		return reason.NotCanonical
	}
	// An upstream with --cors-allowed-origins answers it with headers of its own.
	if has(r.Header, "Origin") {
		return reason.NotCanonical
	}
	return ""
}

// isPlainConnection is false if a Connection header has anything except keep-alive or close:
// another name makes the next proxy drop the header of that name.
func isPlainConnection(values []string) bool {
	for _, value := range values {
		for option := range strings.SplitSeq(value, ",") {
			option = textproto.TrimString(option)
			if option != "" && !strings.EqualFold(option, "keep-alive") && !strings.EqualFold(option, "close") {
				return false
			}
		}
	}
	return true
}

// Credentials is the kind of a caller's credentials.
type Credentials int

const (
	// NoToken means that kube-apiserver sees no token, so to it the caller is anonymous.
	NoToken Credentials = iota
	// PlainToken is one token, written in the one way that cannot be read differently.
	PlainToken
	// UnclearToken is several Authorization headers, or a token that is written in another way.
	UnclearToken
	// Impersonating is a plain token, and Impersonate-* headers that can be read in one way only.
	Impersonating
	// Impersonated means that listproxy has verified who the caller is, and says so to the API server. An
	// Authorization header is not read.
	Impersonated
)

// ReadAuthorization reads a request's Authorization headers. It returns a token only if it is
// plain: the scheme Bearer, a space, and the token, in visible ASCII. kube-apiserver ignores what
// follows after another space. So one token could be written in any number of ways, and each would
// seem to be another caller.
func ReadAuthorization(values []string) (by Credentials, token string) {
	switch {
	case len(values) > 1:
		return UnclearToken, ""
	case len(values) == 0 || !BringsToken(values[0]):
		return NoToken, ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsFunc(token, invisible) {
		return UnclearToken, ""
	}
	return PlainToken, token
}

// BringsToken tells whether kube-apiserver sees a token in an Authorization header
// (k8s.io/apiserver, authentication/request/bearertoken); it reads the first of several. A caller
// who sends anything else there is anonymous to it.
func BringsToken(authorization string) bool {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	token, _, _ := strings.Cut(rest, " ")
	return strings.EqualFold(scheme, "Bearer") && token != ""
}

// checkIdentity makes sure that the request identifies exactly one caller: by its only token, perhaps
// with a user whom the caller impersonates, or as the user whom listproxy impersonates.
func checkIdentity(h http.Header, by Credentials) reason.Reason {
	for name := range h {
		if by != Impersonating && NamesImpersonation(name) {
			return reason.Credentials
		}
	}
	for name := range h {
		// net/http's server makes all names canonical. A name that is not was put
		// there by someone else, and look-ups would miss it.
		if textproto.CanonicalMIMEHeaderKey(name) != name {
			return reason.NotCanonical
		}
	}
	switch by {
	case PlainToken, Impersonating, Impersonated:
		return reason.None
	}
	return reason.Credentials
}

// has tells whether the header occurs at all, even empty.
func has(h http.Header, name string) bool {
	_, ok := h[name]
	return ok
}
