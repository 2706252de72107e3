package policy

import (
	"net/http"
	"net/textproto"
	"strings"

	"github.com/listproxy/listproxy/policy/reason"
)

// impersonatePrefix begins the name of every header that asks to act as another user. It has no dash at its end: some
// HTTP servers read an underscore as one. Names that Kubernetes adds later (as Impersonate-Uid was) begin with it, too.
const impersonatePrefix = "impersonate"

// NamesImpersonation reports whether a header of this name asks to act as another user.
func NamesImpersonation(name string) bool {
	return len(name) >= len(impersonatePrefix) && strings.EqualFold(name[:len(impersonatePrefix)], impersonatePrefix)
}

// checkFraming returns None if the request has no body, and no header by which a hop or the upstream might treat it in
// another way. It ignores headers that the API server ignores on lists, like Range and If-None-Match.
func checkFraming(r *http.Request) reason.Reason {
	// A ContentLength of -1 is a body of unknown length.
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return reason.NotCanonical
	}
	if r.Header["Upgrade"] != nil || !isPlainConnection(r.Header["Connection"]) {
		return reason.NotCanonical
	}
	// An upstream with --cors-allowed-origins answers it with headers of its own.
	if r.Header["Origin"] != nil {
		return reason.NotCanonical
	}
	return reason.None
}

// isPlainConnection reports whether Connection headers have nothing but keep-alive and close. Any other name makes the
// next proxy drop the header of that name.
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
	// NoToken means that kube-apiserver sees no token, and takes the caller for anonymous.
	NoToken Credentials = iota
	// PlainToken means one token, in the one spelling that cannot be read differently.
	PlainToken
	// UnclearToken means several Authorization headers, or a token in another spelling.
	UnclearToken
	// Impersonating means a plain token, and Impersonate-* headers that can be read in one way only.
	Impersonating
	// Impersonated means that listproxy has verified the caller's certificate, and impersonates the caller upstream. The
	// Authorization header is not read.
	Impersonated
)

// ReadAuthorization reads a request's Authorization headers. It returns a token only if it is plain: the scheme Bearer, a
// space, and the token, in visible ASCII. kube-apiserver ignores what follows after another space, so one token could
// be written in any number of ways, and each would seem to be another caller.
func ReadAuthorization(values []string) (credentials Credentials, token string) {
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

// BringsToken reports whether kube-apiserver sees a token in an Authorization header (k8s.io/apiserver,
// authentication/request/bearertoken). It reads only the first of several headers. A caller who sends anything
// else in it is anonymous.
func BringsToken(authorization string) bool {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	token, _, _ := strings.Cut(rest, " ")
	return strings.EqualFold(scheme, "Bearer") && token != ""
}

// checkIdentity returns None if the request identifies exactly one caller: by its only token, perhaps with a user whom
// the caller impersonates, or as the user whom listproxy impersonates.
func checkIdentity(h http.Header, credentials Credentials) reason.Reason {
	for name := range h {
		if credentials != Impersonating && NamesImpersonation(name) {
			return reason.Credentials
		}
	}
	switch credentials {
	case PlainToken, Impersonating, Impersonated:
		return reason.None
	}
	return reason.Credentials
}
