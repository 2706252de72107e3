package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
)

// Identity says who the caller is:
//
//	the caller                                  requests are sent with
//	has credentials in Authorization            this header, and the caller's own Impersonate-* headers
//	is a user whom listproxy has verified       listproxy's credentials, and Impersonate-* headers that name the user
//	is nobody: Authorization is missing,        no review is sent, an Authorizer's decision is No; a forwarded request
//	empty or ambiguous; the zero Identity       keeps the headers that it has
//	is listproxy's own account (IsOwn)          listproxy's credentials
//
// What is remembered about a caller is stored under a [Key], so no credential is kept longer than its request.
//
// An Identity is immutable. fmt and slog print neither its credential nor its user.
type Identity struct {
	// The first four fields are pointers, so that fmt cannot print their contents. fmt does not call Format for an Identity in an
	// unexported field of another struct: of a string it would print the text there, but of a pointer only the address.

	// authorization is the Authorization header; nil if there is not exactly one.
	authorization *string
	// token is the plain token in the Authorization header; nil if there is none.
	token *string
	// verified is the user whom listproxy has verified; nil if there is none.
	verified *user.DefaultInfo
	// impersonatedByCaller is the user whom the caller's own Impersonate-* headers name, never verified; nil if there is none.
	impersonatedByCaller *user.DefaultInfo
	// kind is the kind of the credentials in the Authorization header. It is not set for a verified user.
	kind policy.CredentialKind
	// key identifies the caller together with the impersonated user.
	key Key
	// callerKey identifies the caller alone.
	callerKey Key
	// own reports whether this is listproxy's own account.
	own bool
}

// Key returns the key of the caller together with the impersonated user, if any. It is zero for listproxy's own account, and
// for nobody, about whom the upstream is never asked.
func (id Identity) Key() Key { return id.key }

// VerifiedUser returns the user whom listproxy has verified, or nil. listproxy sends this user's requests with its own
// credentials, and impersonates the user.
func (id Identity) VerifiedUser() *user.DefaultInfo { return id.verified }

// ImpersonatedUser returns the user whom requests to the upstream name in Impersonate-* headers: the verified user, for whom
// listproxy writes the headers, or the user whom the caller's own headers name. It returns nil if there are no such headers.
func (id Identity) ImpersonatedUser() *user.DefaultInfo {
	if id.verified != nil {
		return id.verified
	}
	return id.impersonatedByCaller
}

// Impersonator returns the identity that needs the right to impersonate [Identity.ImpersonatedUser]: listproxy's own account
// for a verified user, otherwise the caller alone. If nobody is impersonated, it returns id.
func (id Identity) Impersonator() Identity {
	if id.verified != nil {
		return Identity{own: true}
	}
	if id.impersonatedByCaller != nil {
		id.impersonatedByCaller = nil
		id.kind = policy.PlainToken // only callers with a plain token may impersonate
		id.key = id.callerKey
	}
	return id
}

// IsOwn reports whether id is listproxy's own account.
func (id Identity) IsOwn() bool { return id.own }

// SetHeaders sets the headers in h that identify the caller at the upstream. For nobody and for listproxy's own account, it
// changes nothing.
func (id Identity) SetHeaders(h http.Header) {
	if u := id.ImpersonatedUser(); u != nil {
		writeImpersonation(h, u)
	}
	if id.authorization != nil {
		h.Set("Authorization", *id.authorization)
	}
}

// HasCredentials reports whether requests can be sent as id. They are sent with the caller's one Authorization header, or,
// for a verified user and for listproxy's own account, with listproxy's own credentials. Only nobody has no credentials.
func (id Identity) HasCredentials() bool {
	return id.authorization != nil || id.verified != nil || id.own
}

// HasToken reports whether the caller has a token in its one Authorization header. Another scheme, such as Basic, has none, and an
// ambiguous token does not count.
func (id Identity) HasToken() bool {
	return id.authorization != nil && id.kind != policy.NoToken
}

// CredentialKind says how the caller identifies itself, for policy.Parse.
func (id Identity) CredentialKind() policy.CredentialKind {
	if id.verified != nil {
		return policy.VerifiedCertificate
	}
	return id.kind
}

var _ fmt.Formatter = Identity{}

// Format implements [fmt.Formatter], for any verb, and for the text handler of slog. slog's JSON handler uses encoding/json,
// which writes no unexported fields.
func (Identity) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "Identity(hidden)") }

// newIdentity returns the identity of a caller who sends this Authorization header. kind and token are the results of
// [policy.ReadAuthorization] for the header.
func (s *identitySecret) newIdentity(authorization string, kind policy.CredentialKind, token string) Identity {
	id := Identity{authorization: &authorization, kind: kind}
	prefix := byte(prefixAuthorization)
	credential := authorization
	if kind == policy.PlainToken {
		id.token = &token
		prefix = prefixToken
		credential = token // "Bearer" and "bearer" give the same key
	}
	mac := hmac.New(sha256.New, s[:])
	_, _ = mac.Write([]byte{prefix}) // a hash returns no error
	_, _ = io.WriteString(mac, credential)
	mac.Sum(id.callerKey[:0])
	id.key = id.callerKey
	return id
}

// NewVerifiedIdentity returns the identity of a user whom listproxy has verified.
func (a *Authenticator) NewVerifiedIdentity(u *user.DefaultInfo) Identity {
	key := a.secret.userKey([]byte{prefixVerifiedUser}, u)
	return Identity{verified: u, key: key, callerKey: key}
}

// newImpersonatingIdentity returns the identity of a caller who impersonates u. id is the identity of the caller alone, which
// has a plain token.
func (s *identitySecret) newImpersonatingIdentity(id Identity, u *user.DefaultInfo) Identity {
	id.impersonatedByCaller = u
	id.kind = policy.TokenWithImpersonation
	prefix := append([]byte{prefixImpersonating}, id.callerKey[:]...)
	id.key = s.userKey(prefix, u)
	return id
}
