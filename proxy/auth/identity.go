package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
)

// Identity says who the caller is. It is one of
//
//   - a caller with credentials in the request's Authorization header. Reviews are sent with this header and the request's
//     Impersonate-* headers. A forwarded request has these headers already.
//   - a user whom listproxy has verified. Requests are sent with listproxy's credentials, and with Impersonate-* headers
//     that name this user.
//   - nobody: the request has no Authorization header, or ambiguous ones. The decision of an Authorizer is No, and requests
//     are forwarded unchanged. The zero Identity is nobody, too.
//   - listproxy's own account (see [Identity.IsOwn]).
//
// Whatever is remembered about a caller is stored under a key of the caller. So no credential is kept longer than its
// request or its connection.
//
// An Identity is immutable. fmt and slog print neither its credential nor its user, whatever the verb.
type Identity struct {
	// authorization is the Authorization header; nil if there is not exactly one. token is its token; nil if it has no
	// plain token. They are pointers on purpose: fmt does not call Format for an unexported field of another struct, and
	// would print strings, but prints only the addresses of pointers.
	authorization, token *string
	// verified is the user whom listproxy has verified; nil if there is none.
	verified *user.DefaultInfo
	// impersonated is the user whom the caller's own Impersonate-* headers name; nil if there is none.
	impersonated *user.DefaultInfo
	kind         policy.CredentialKind
	// key identifies the caller together with the impersonated user, callerKey the caller alone.
	key, callerKey Key
	// own reports whether this is listproxy's own account.
	own bool
}

// Key is an HMAC of a token, of another credential, or of a user.
type Key [sha256.Size]byte

// The first byte of an HMAC's input says what the rest is.
const (
	prefixToken         = 't'
	prefixAuthorization = 'a' // an Authorization header without a plain token
	prefixVerifiedUser  = 'v'
	prefixImpersonating = 'i' // a token, and the user whom its caller impersonates
)

// Key returns the key of the caller, together with the user whom the caller impersonates, if any.
func (id Identity) Key() Key { return id.key }

// VerifiedUser returns the user whom listproxy has verified. listproxy sends this user's requests with its own credentials,
// and impersonates the user. VerifiedUser returns nil if the caller's credentials are sent.
func (id Identity) VerifiedUser() *user.DefaultInfo { return id.verified }

// ImpersonatedUser returns the user whom Impersonate-* headers name to the upstream: the verified user, for whom listproxy
// writes them, or the user whom the caller's own headers name. It returns nil if no such headers are sent.
func (id Identity) ImpersonatedUser() *user.DefaultInfo {
	if id.verified != nil {
		return id.verified
	}
	return id.impersonated
}

// Impersonator returns the identity that needs the right to impersonate [Identity.ImpersonatedUser]: listproxy's own
// account, or the caller without Impersonate-* headers.
func (id Identity) Impersonator() Identity {
	if id.verified != nil {
		return Identity{own: true}
	}
	if id.impersonated != nil {
		id.impersonated = nil
		id.kind = policy.PlainToken
		id.key = id.callerKey
	}
	return id
}

// IsOwn reports whether id is listproxy's own account. Its key is zero, which is no caller's.
func (id Identity) IsOwn() bool { return id.own }

// Present sets the headers in h that show the upstream who the caller is. For nobody and for listproxy's own account, it
// sets none.
func (id Identity) Present(h http.Header) {
	if u := id.ImpersonatedUser(); u != nil {
		impersonate(h, u)
	}
	if id.authorization != nil {
		h.Set("Authorization", *id.authorization)
	}
}

// Known reports whether id is somebody: a caller with one Authorization header, a verified user, or listproxy's account.
func (id Identity) Known() bool { return id.authorization != nil || id.verified != nil || id.own }

// HasToken reports whether the upstream sees a token in the caller's Authorization header. An Authorization header of another
// kind, such as Basic, has none.
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

// Format implements [fmt.Formatter] without the credential, for every verb. slog calls it, too.
func (Identity) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "Identity(hidden)") }

// identitySecret is the secret of the HMACs that are the keys of identities. It is random for each process. So nobody who
// reads a key in a dump can check guesses of a token against it, or compare it with the keys of another process.
type identitySecret [sha256.Size]byte

func newIdentitySecret() (s identitySecret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// identify returns the identity of a caller who sends this Authorization header. kind and token are what
// [policy.ReadAuthorization] returns for it.
func (s *identitySecret) identify(authorization string, kind policy.CredentialKind, token string) Identity {
	id := Identity{authorization: &authorization, kind: kind}
	prefix := byte(prefixAuthorization)
	credential := authorization
	if kind == policy.PlainToken {
		id.token = &token
		prefix = prefixToken
		credential = token // so the case of the scheme does not matter
	}
	mac := hmac.New(sha256.New, s[:])
	_, _ = mac.Write([]byte{prefix}) // a hash returns no error
	_, _ = io.WriteString(mac, credential)
	mac.Sum(id.callerKey[:0])
	id.key = id.callerKey
	return id
}

// identifyUser returns the identity of a user whom listproxy has verified.
func (s *identitySecret) identifyUser(u *user.DefaultInfo) Identity {
	key := s.userKey([]byte{prefixVerifiedUser}, u)
	return Identity{verified: u, key: key, callerKey: key}
}

// identifyImpersonating returns the identity of a caller who impersonates u. id is the caller's, with a plain token.
func (s *identitySecret) identifyImpersonating(id Identity, u *user.DefaultInfo) Identity {
	id.impersonated = u
	id.kind = policy.TokenWithImpersonation
	prefix := append([]byte{prefixImpersonating}, id.callerKey[:]...)
	id.key = s.userKey(prefix, u)
	return id
}

// userKey returns an HMAC of prefix and u. The first byte of prefix must determine its length, so that no two inputs are
// equal.
func (s *identitySecret) userKey(prefix []byte, u *user.DefaultInfo) (key Key) {
	mac := hmac.New(sha256.New, s[:])
	_, _ = mac.Write(prefix)
	writeStrings(mac, u.Name, u.UID)
	writeStrings(mac, u.Groups...)
	for _, name := range slices.Sorted(maps.Keys(u.Extra)) {
		writeStrings(mac, name)
		writeStrings(mac, u.Extra[name]...)
	}
	mac.Sum(key[:0])
	return key
}

// writeStrings writes the number of strings, and each string after its length, so that no two lists write the same bytes.
func writeStrings(h hash.Hash, list ...string) {
	var buffer [binary.MaxVarintLen64]byte
	writeNumber := func(n int) { _, _ = h.Write(binary.AppendUvarint(buffer[:0], uint64(n))) } // #nosec G115 -- a length
	writeNumber(len(list))
	for _, s := range list {
		writeNumber(len(s))
		_, _ = io.WriteString(h, s)
	}
}
