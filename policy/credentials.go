package policy

import (
	"net/http"
	"strings"
)

// CredentialKind says how the caller that sent a request identifies itself. It is an argument of [Parse], since it depends on
// the connection, too. [ReadAuthorization] determines it from the Authorization header alone.
type CredentialKind int

const (
	// NoToken means that kube-apiserver sees no token, and treats the caller as anonymous.
	NoToken CredentialKind = iota
	// AmbiguousToken means several Authorization headers, or one that two parsers may read differently: "Bearer abc def".
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
//	"Bearer  abc" (two spaces)                    NoToken
//	"Bearer abc", "bearer abc"                    PlainToken      "abc"
//	"Bearer abc def", " Bearer abc", two headers  AmbiguousToken
//
// A header has a plain token if it consists of these parts, and nothing else:
//
//   - Bearer, in upper or lower case
//   - one space
//   - the token, of visible ASCII
//
// A space after the token makes the header ambiguous, since kube-apiserver ignores everything after that space. "Bearer abc x"
// and "Bearer abc y" have the same token there, but would look like two callers here.
func ReadAuthorization(values []string) (kind CredentialKind, token string) {
	switch {
	case len(values) > 1:
		return AmbiguousToken, ""
	case len(values) == 0 || !HasBearerToken(values[0]):
		return NoToken, ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	beginsWithBearer := strings.EqualFold(scheme, "Bearer") // HasBearerToken also accepts white space before it
	isInvisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if !beginsWithBearer || strings.ContainsFunc(token, isInvisible) {
		return AmbiguousToken, ""
	}
	return PlainToken, token
}

// HasBearerToken reports whether kube-apiserver sees a token in the value of an Authorization header (k8s.io/apiserver,
// authentication/request/bearertoken). If kube-apiserver sees no token, it treats the caller as anonymous.
func HasBearerToken(authorization string) bool {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	token, _, _ := strings.Cut(rest, " ")
	return strings.EqualFold(scheme, "Bearer") && token != ""
}

// identifiesCaller reports whether a request with these headers and credentials identifies exactly one caller: by one token, or
// by a certificate that listproxy has verified. Only TokenWithImpersonation allows Impersonate-* headers, since they name
// another user.
func identifiesCaller(h http.Header, kind CredentialKind) bool {
	if kind == TokenWithImpersonation { // The Impersonate-* headers can be read in one way only.
		return true
	}
	for name := range h {
		if IsImpersonationHeader(name) {
			return false
		}
	}
	return kind == PlainToken || kind == VerifiedCertificate
}

// impersonatePrefix begins the name of every header that asks to act as another user. It is not a list of the known headers,
// since Kubernetes may add others, as it once added Impersonate-Uid. It has no dash at its end, since some HTTP servers read
// Impersonate_User as Impersonate-User.
const impersonatePrefix = "impersonate"

// IsImpersonationHeader reports whether a header with this name asks to act as another user. Upper and lower case do not
// matter.
func IsImpersonationHeader(name string) bool {
	return len(name) >= len(impersonatePrefix) && strings.EqualFold(name[:len(impersonatePrefix)], impersonatePrefix)
}
