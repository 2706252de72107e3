package auth

import (
	"cmp"
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

// Identity shows the upstream who the caller is. It is one of
//
//   - a caller with credentials in the request's Authorization header. A review is sent with this header and the
//     request's Impersonate-* headers; a forwarded request has them anyway.
//   - a user whom listproxy has verified. Requests are sent with listproxy's credentials, and Impersonate-* headers
//     that name this user.
//   - nobody, the zero Identity. An Authorizer never says yes to it, and its requests are forwarded unchanged.
//   - listproxy's own account (see [Identity.IsOwn]).
//
// What is remembered of a caller is stored under the caller's key. So no credential is kept longer than its request or
// its connection.
//
// An Identity never prints its credential or its user, whatever the verb. It is immutable.
type Identity struct {
	// authorization is the Authorization header, and token the token in it, nil if it has none in the usual form.
	// They are pointers because fmt calls no methods on unexported fields of a struct: it would print strings, but it
	// prints only the addresses of pointers.
	authorization, token *string
	// impersonated is the user whom listproxy has verified, and named the one whom the caller's own headers name.
	impersonated, named *user.DefaultInfo
	// kind is the kind of credentials in the request's headers.
	kind policy.Credentials
	// key stands for the caller and the user who is named, callerKey for the caller alone.
	key, callerKey Key
	// own reports whether this is listproxy's own account.
	own bool
}

// Key is an HMAC of a token, of another credential, or of a user.
type Key [sha256.Size]byte

// The first byte of an HMAC's input distinguishes what its key stands for.
const (
	prefixToken         = 't'
	prefixAuthorization = 'a' // an Authorization header without a token in the usual form
	prefixVerifiedUser  = 's'
	prefixImpersonating = 'i' // a token, and the user whom its caller impersonates
)

// Key returns the key under which is remembered what the caller may do as the user whom the caller impersonates, if
// any.
func (id Identity) Key() Key { return id.key }

// Impersonated returns the user as whom listproxy sends requests with its own credentials. It returns nil if the
// caller's credentials are sent.
func (id Identity) Impersonated() *user.DefaultInfo { return id.impersonated }

// Named returns the user whom Impersonate-* headers, listproxy's or the caller's own, name to the upstream, or nil.
func (id Identity) Named() *user.DefaultInfo { return cmp.Or(id.impersonated, id.named) }

// Impersonator returns the identity that needs the right to impersonate [Identity.Named]: the caller's own, or that of
// listproxy's account.
func (id Identity) Impersonator() Identity {
	if id.impersonated != nil {
		return Identity{own: true}
	}
	if id.named != nil {
		id.named = nil
		id.kind = policy.PlainToken
		id.key = id.callerKey
	}
	return id
}

// IsOwn reports whether id is listproxy's own account, which is no caller's. Its key is zero.
func (id Identity) IsOwn() bool { return id.own }

// Present sets the headers in h that show the upstream who the caller is. It sets none for nobody and for listproxy's
// own account.
func (id Identity) Present(h http.Header) {
	if named := id.Named(); named != nil {
		setImpersonation(h, named)
	}
	if id.authorization != nil {
		h.Set("Authorization", *id.authorization)
	}
}

// Known reports whether id is somebody's. It is false for the zero Identity.
func (id Identity) Known() bool { return id.authorization != nil || id.impersonated != nil || id.own }

// HasToken reports whether the upstream sees a token in the caller's Authorization header.
func (id Identity) HasToken() bool {
	return id.authorization != nil && id.kind != policy.NoToken
}

// Credentials returns the kind of the caller's credentials, for policy.Parse.
func (id Identity) Credentials() policy.Credentials {
	if id.impersonated != nil {
		return policy.VerifiedCertificate
	}
	return id.kind
}

var _ fmt.Formatter = Identity{}

// Format implements [fmt.Formatter] without the credential, for every verb. slog uses it, too.
func (Identity) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "Identity(hidden)") }

// identitySecret makes the keys of identities. It is random and lives as long as the process. So nobody who reads a
// key in a dump can check guesses of a token against it, or compare it with the keys of another process.
type identitySecret [sha256.Size]byte

func newIdentitySecret() (s identitySecret) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// identify returns the identity of a caller who sends this Authorization header. token is the token in it, if it has
// one in the usual form.
func (s *identitySecret) identify(authorization string, kind policy.Credentials, token string) Identity {
	id := Identity{authorization: &authorization, kind: kind}
	prefix, credential := byte(prefixAuthorization), authorization
	if kind == policy.PlainToken {
		id.token = &token
		prefix, credential = prefixToken, token // however the scheme is written
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
	key := s.userKey(u, prefixVerifiedUser)
	return Identity{impersonated: u, key: key, callerKey: key}
}

// identifyImpersonating returns the identity of a caller with a token who impersonates u.
func (s *identitySecret) identifyImpersonating(id Identity, u *user.DefaultInfo) Identity {
	id.named = u
	id.kind = policy.TokenWithImpersonation
	id.key = s.userKey(u, append([]byte{prefixImpersonating}, id.callerKey[:]...)...)
	return id
}

// userKey returns an HMAC of a prefix, whose first byte determines its length, and of u.
func (s *identitySecret) userKey(u *user.DefaultInfo, prefix ...byte) (key Key) {
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

// writeStrings writes the number of strings, and each string after its length, so that no two lists write the same.
func writeStrings(h hash.Hash, list ...string) {
	var buffer [binary.MaxVarintLen64]byte
	writeNumber := func(n int) { _, _ = h.Write(binary.AppendUvarint(buffer[:0], uint64(n))) } // #nosec G115 -- a length
	writeNumber(len(list))
	for _, s := range list {
		writeNumber(len(s))
		_, _ = io.WriteString(h, s)
	}
}
