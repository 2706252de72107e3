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

// Identity says who the caller is. There are four kinds of callers, whose requests reach the API server with different headers:
//
//	the caller                               headers of the request
//	has credentials in Authorization         this header, and the caller's own Impersonate-* headers
//	is a user whom listproxy has verified    listproxy's credentials, and Impersonate-* headers that name the user
//	is listproxy's own account (IsOwn)       listproxy's credentials
//	is unidentified                          the caller's own headers, unchanged
//
// A caller is unidentified if there is not exactly one Authorization header, or if this header is empty, or can be read in
// several ways ([policy.AmbiguousToken]). An [Authorizer] never asks what an unidentified caller may do: its decision is No.
// The zero Identity is that of an unidentified caller.
//
// What is remembered about a caller is stored under a [Key], so no credential is kept longer than its request.
//
// An Identity is immutable. fmt and slog print neither its credential nor its user.
type Identity struct {
	// The first four fields are pointers, so that fmt cannot print their contents. If an Identity is in an unexported field of
	// another struct, fmt does not call Format: it would print the text of a string, but prints only the address of a pointer.

	// authorization is the Authorization header, or nil for all callers without credentials in this header.
	authorization *string
	// token is the plain token in the Authorization header, or nil if there is none.
	token *string
	// verified is the user whom listproxy has verified, or nil if there is none.
	verified *user.DefaultInfo
	// impersonatedByCaller is the user whom the caller's own Impersonate-* headers name, or nil if there is none. listproxy
	// never verifies this user.
	impersonatedByCaller *user.DefaultInfo
	// kind is the kind of the credentials in the Authorization header. It is not used for a verified user.
	kind policy.CredentialKind
	// key identifies the caller together with the impersonated user. Rights are remembered under it. If nobody is impersonated,
	// or if the user was verified, it equals callerKey.
	key Key
	// callerKey identifies the caller alone. Verdicts on credentials are remembered under it ([Verdicts]).
	callerKey Key
	// own reports whether this is listproxy's own account.
	own bool
}

// Key returns the key of the caller together with the impersonated user, if any. It is zero for listproxy's own account, and
// for unidentified callers, about whom the upstream is never asked.
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
// for a verified user, and the caller alone for a user whom the caller's headers name. If nobody is impersonated, it returns
// id.
func (id Identity) Impersonator() Identity {
	if id.verified != nil {
		return Identity{own: true}
	}
	if id.impersonatedByCaller != nil {
		id.impersonatedByCaller = nil // id is a copy
		id.kind = policy.PlainToken   // only callers with a plain token may impersonate
		id.key = id.callerKey
	}
	return id
}

// IsOwn reports whether id is listproxy's own account.
func (id Identity) IsOwn() bool { return id.own }

// SetHeaders sets the headers in h that identify the caller at the upstream. For an unidentified caller and for listproxy's own
// account, it changes nothing.
func (id Identity) SetHeaders(h http.Header) {
	if u := id.ImpersonatedUser(); u != nil {
		writeImpersonation(h, u)
	}
	if id.authorization != nil {
		h.Set("Authorization", *id.authorization)
	}
}

// HasCredentials reports whether there are credentials with which requests can be sent as id: the caller's own, or listproxy's
// for a verified user and for listproxy's own account. Only an unidentified caller has none.
func (id Identity) HasCredentials() bool {
	return id.authorization != nil || id.verified != nil || id.own
}

// HasToken reports whether the caller's credentials are a token in the Authorization header. Credentials of another scheme,
// such as Basic, are not a token.
func (id Identity) HasToken() bool {
	return id.authorization != nil && id.kind != policy.NoToken
}

// CredentialKind returns how the caller identifies itself, for policy.Parse.
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

// newImpersonatingIdentity returns the identity of a caller who impersonates u. id is the identity of the caller alone, who has
// a plain token.
func (s *identitySecret) newImpersonatingIdentity(id Identity, u *user.DefaultInfo) Identity {
	id.impersonatedByCaller = u
	id.kind = policy.TokenWithImpersonation
	prefix := append([]byte{prefixImpersonating}, id.callerKey[:]...)
	id.key = s.userKey(prefix, u)
	return id
}
