package policy

import (
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/policy/reason"
)

// CredentialKind says how the caller of a request identifies itself.
type CredentialKind int

const (
	// NoToken means that kube-apiserver sees no token, and treats the caller as anonymous.
	NoToken CredentialKind = iota
	// AmbiguousToken means that there are several Authorization headers, or a token in a spelling that may be read
	// differently.
	AmbiguousToken
	// PlainToken means that there is one token, in the one spelling that every parser reads alike.
	PlainToken
	// TokenWithImpersonation means a plain token, and Impersonate-* headers that can be read in one way only.
	TokenWithImpersonation
	// VerifiedCertificate means that listproxy has verified the caller's client certificate, and impersonates the caller
	// upstream. The Authorization header is not read.
	VerifiedCertificate
)

// ReadAuthorization reads the values of a request's Authorization headers. It returns NoToken, AmbiguousToken, or
// PlainToken with the token. A plain token is written "Bearer <token>", with one space, in visible ASCII.
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
	isNotVisibleASCII := func(r rune) bool { return r <= ' ' || r > '~' } // a second space is not visible, either
	if !strings.EqualFold(scheme, "Bearer") || strings.ContainsFunc(token, isNotVisibleASCII) {
		return AmbiguousToken, ""
	}
	return PlainToken, token
}

// HasBearerToken reports whether kube-apiserver sees a token in the value of an Authorization header (k8s.io/apiserver,
// authentication/request/bearertoken). kube-apiserver treats a caller who sends any other value as anonymous.
func HasBearerToken(authorization string) bool {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	token, _, _ := strings.Cut(rest, " ")
	return strings.EqualFold(scheme, "Bearer") && token != ""
}

// checkIdentity returns None if the request identifies exactly one caller: by one token, with or without a user whom the
// caller impersonates, or by a certificate that listproxy has verified. The kind TokenWithImpersonation includes the
// Impersonate-* headers. Any other kind does not, so with these headers the API server would see another user.
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

// impersonatePrefix begins the name of every header that asks to act as another user. Kubernetes may add such headers, as
// it added Impersonate-Uid. The prefix ends without a dash, since some HTTP servers read Impersonate_User, with an
// underscore, as Impersonate-User.
const impersonatePrefix = "impersonate"

// IsImpersonationHeader reports whether a header with this name asks to act as another user. Upper and lower case do not
// matter.
func IsImpersonationHeader(name string) bool {
	return len(name) >= len(impersonatePrefix) && strings.EqualFold(name[:len(impersonatePrefix)], impersonatePrefix)
}
