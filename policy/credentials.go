package policy

import (
	"net/http"
	"strings"
)

// CredentialKind says how the caller of a request identifies itself. Callers of [Parse] determine it from the headers
// ([ReadAuthorization]) and the connection.
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

// ReadAuthorization reads the values of a request's Authorization headers. token is "" if kind is not PlainToken.
//
//	headers                                       kind            token
//	none, "Basic x", "Bearer "                    NoToken
//	"Bearer abc", "bearer abc"                    PlainToken      "abc"
//	"Bearer abc def", " Bearer abc", two headers  AmbiguousToken
//
// A plain token follows exactly one space, and consists of visible ASCII. kube-apiserver ignores everything after a second space.
// If "Bearer abc x" and "Bearer abc y" were plain, one token would have many spellings, and each would seem to be another caller.
func ReadAuthorization(values []string) (kind CredentialKind, token string) {
	switch {
	case len(values) > 1:
		return AmbiguousToken, ""
	case len(values) == 0 || !HasBearerToken(values[0]):
		return NoToken, ""
	}
	scheme, rest, _ := strings.Cut(values[0], " ")
	isVisibleASCII := func(r rune) bool { return r > ' ' && r <= '~' }
	isAllVisible := strings.TrimLeftFunc(rest, isVisibleASCII) == "" // false if there is a second space
	if !strings.EqualFold(scheme, "Bearer") || !isAllVisible {
		return AmbiguousToken, ""
	}
	return PlainToken, rest
}

// HasBearerToken reports whether kube-apiserver sees a token in the value of an Authorization header (k8s.io/apiserver,
// authentication/request/bearertoken). If it sees none, it treats the caller as anonymous.
func HasBearerToken(authorization string) bool {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	token, _, _ := strings.Cut(rest, " ")
	return strings.EqualFold(scheme, "Bearer") && token != ""
}

// identifiesCaller reports whether a request with these headers and credentials identifies exactly one caller: by one token, or
// by a certificate that listproxy has verified. Impersonate-* headers name another user, so only TokenWithImpersonation allows
// them.
func identifiesCaller(h http.Header, kind CredentialKind) bool {
	if kind == TokenWithImpersonation { // listproxy has read the Impersonate-* headers
		return true
	}
	for name := range h {
		if IsImpersonationHeader(name) {
			return false
		}
	}
	return kind == PlainToken || kind == VerifiedCertificate
}

// impersonatePrefix begins the name of every header that asks to act as another user. Kubernetes may add more such headers, as it
// once added Impersonate-Uid. The prefix has no dash at its end, since some HTTP servers read Impersonate_User as
// Impersonate-User.
const impersonatePrefix = "impersonate"

// IsImpersonationHeader reports whether a header with this name asks to act as another user. Upper and lower case do not matter.
func IsImpersonationHeader(name string) bool {
	return len(name) >= len(impersonatePrefix) && strings.EqualFold(name[:len(impersonatePrefix)], impersonatePrefix)
}
