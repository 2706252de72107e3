package policy

import (
	"net/http"
	"net/textproto"
	"strings"

	"github.com/listproxy/listproxy/policy/reason"
)

// impersonatePrefix begins the name of every header that asks to act as another user, also of headers that Kubernetes
// will add (as it added Impersonate-Uid). The prefix ends without a dash, since some HTTP servers read an underscore as a
// dash.
const impersonatePrefix = "impersonate"

// IsImpersonationHeader reports whether a header with this name, in any case, asks to act as another user.
func IsImpersonationHeader(name string) bool {
	return len(name) >= len(impersonatePrefix) && strings.EqualFold(name[:len(impersonatePrefix)], impersonatePrefix)
}

// checkPlainRequest returns None if the request has no body, no upgrade, and no header that is meant for this hop or changes
// the upstream's answer. Headers that the API server ignores on lists, like Range and If-None-Match, do not matter.
func checkPlainRequest(r *http.Request) reason.Reason {
	// A ContentLength of -1 means a body of unknown length.
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return reason.NotCanonical
	}
	if r.Header["Upgrade"] != nil || !isPlainConnection(r.Header["Connection"]) {
		return reason.NotCanonical
	}
	// An upstream with --cors-allowed-origins answers with CORS headers, which answers from memory lack.
	if r.Header["Origin"] != nil {
		return reason.NotCanonical
	}
	return reason.None
}

// isPlainConnection reports whether Connection headers list nothing but keep-alive and close. Any other option names a
// header that the next proxy must remove.
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

// CredentialKind says how the caller of a request identifies itself.
type CredentialKind int

const (
	// NoToken means that kube-apiserver sees no token, and treats the caller as anonymous.
	NoToken CredentialKind = iota
	// PlainToken means one token, in the one spelling that cannot be read differently.
	PlainToken
	// AmbiguousToken means several Authorization headers, or a token in any other spelling.
	AmbiguousToken
	// TokenWithImpersonation means a plain token, and Impersonate-* headers that can be read in one way only.
	TokenWithImpersonation
	// VerifiedCertificate means that listproxy has verified the caller's client certificate, and impersonates the caller
	// upstream. The Authorization header is not read.
	VerifiedCertificate
)

// ReadAuthorization reads the values of a request's Authorization headers. It returns NoToken, AmbiguousToken, or
// PlainToken with the token. A plain token is written "Bearer <token>", in visible ASCII: every parser reads it alike.
//
// kube-apiserver ignores everything after a second space. If such a value were plain, one token could be written in any
// number of ways, and each would seem to be another caller.
func ReadAuthorization(values []string) (kind CredentialKind, token string) {
	switch {
	case len(values) > 1:
		return AmbiguousToken, ""
	case len(values) == 0 || !HasBearerToken(values[0]):
		return NoToken, ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	invisible := func(r rune) bool { return r <= ' ' || r > '~' } // also a second space
	if !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsFunc(token, invisible) {
		return AmbiguousToken, ""
	}
	return PlainToken, token
}

// HasBearerToken reports whether kube-apiserver sees a token in the value of an Authorization header (k8s.io/apiserver,
// authentication/request/bearertoken). It treats a caller who sends any other value as anonymous.
func HasBearerToken(authorization string) bool {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	token, _, _ := strings.Cut(rest, " ")
	return strings.EqualFold(scheme, "Bearer") && token != ""
}

// checkIdentity returns None if the request identifies exactly one caller: by one token, with or without a user whom the
// caller impersonates, or by a certificate that listproxy has verified. With any other kind than TokenWithImpersonation,
// there must be no Impersonate-* header.
func checkIdentity(h http.Header, kind CredentialKind) reason.Reason {
	switch kind {
	case TokenWithImpersonation:
		return reason.None
	case PlainToken, VerifiedCertificate:
		for name := range h {
			if IsImpersonationHeader(name) {
				return reason.Credentials
			}
		}
		return reason.None
	}
	return reason.Credentials
}
