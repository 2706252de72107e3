package policy

import (
	"net/http"
	"strings"
)

// CredentialKind says how the caller of a request identifies itself.
type CredentialKind int

const (
	// NoToken means that kube-apiserver sees no token, and treats the caller as anonymous.
	NoToken CredentialKind = iota
	// AmbiguousToken means several Authorization headers, or a token in a spelling that two parsers may read differently.
	AmbiguousToken
	// PlainToken means one token, in the spelling that every parser reads alike.
	PlainToken
	// TokenWithImpersonation means a plain token, and Impersonate-* headers that can be read in one way only.
	TokenWithImpersonation
	// VerifiedCertificate means a client certificate that listproxy has verified. listproxy impersonates the caller upstream,
	// and does not read the Authorization header.
	VerifiedCertificate
)

// ReadAuthorization reads the values of a request's Authorization headers.
//
//	none, "Basic x", "Bearer "                    NoToken
//	"Bearer abc", "bearer abc"                    PlainToken, "abc"
//	"Bearer abc def", " Bearer abc", two headers  AmbiguousToken
//
// A plain token follows exactly one space, and is in visible ASCII. kube-apiserver ignores what follows a second space. If "Bearer
// abc x" and "Bearer abc y" were plain, one token could have any number of spellings, and each would seem to be another caller.
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

// identifiesCaller reports whether a request identifies exactly one caller: by one token, or by a certificate that listproxy
// has verified. Impersonate-* headers name another user, so only TokenWithImpersonation allows them.
func identifiesCaller(h http.Header, kind CredentialKind) bool {
	if kind == TokenWithImpersonation {
		return true
	}
	for name := range h {
		if IsImpersonationHeader(name) {
			return false
		}
	}
	return kind == PlainToken || kind == VerifiedCertificate
}

// impersonatePrefix begins the name of every header that asks to act as another user. Kubernetes may add such headers, as
// it added Impersonate-Uid. The prefix has no dash at its end, since some HTTP servers read Impersonate_User as
// Impersonate-User.
const impersonatePrefix = "impersonate"

// IsImpersonationHeader reports whether a header with this name, in any case, asks to act as another user.
func IsImpersonationHeader(name string) bool {
	return len(name) >= len(impersonatePrefix) && strings.EqualFold(name[:len(impersonatePrefix)], impersonatePrefix)
}
