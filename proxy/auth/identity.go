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
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
)

// hiddenIdentity is all that an Identity ever prints.
const hiddenIdentity = "Identity(hidden)"

// Identity is what shows the upstream who the caller is. It is one of
//
//   - the value of the request's own Authorization header, which is sent on with a
//     review, and which a forwarded request has anyway; with it go the request's own
//     Impersonate-* headers;
//   - a user whom listproxy has verified and impersonates towards the upstream, with the
//     proxy's credentials and Impersonate-* headers;
//   - nobody, the zero Identity: an Authorizer never says yes to it, and its requests are forwarded
//     as they came.
//
// Wherever something is remembered for an Identity, its key stands for it, so that no credential is
// kept longer than its request, or, on a connection, than that.
//
// An Identity never prints its credential or its user, whatever the verb. It is immutable.
type Identity struct {
	// These are pointers because of fmt: it calls no methods on the unexported fields of a struct, so
	// it would print strings, but of pointers it prints only addresses. token is the part of
	// authorization that is the token; nil if authorization is not a token in its usual form.
	authorization, token *string
	// impersonated is impersonated by listproxy, and named by the caller.
	impersonated, named *user.DefaultInfo
	// by is the kind of credentials in the request's headers.
	by policy.Credentials
	// key includes the user who is named; credentials does not.
	key, credentials Key
	own              bool // listproxy's own account
}

// Key is an HMAC of a token, of another credential, or of an impersonated user.
type Key [sha256.Size]byte

// The first byte of the HMAC's input distinguishes tokens, other credentials, users, and tokens that
// impersonate a user.
const (
	keyOfAuthorization = 'a'
	keyOfToken         = 't'
	keyOfImpersonated  = 's'
	keyOfImpersonating = 'i'
)

// Key stands for the caller, and for the user whom the caller impersonates, wherever something is
// remembered of what they may do.
func (id Identity) Key() Key { return id.key }

// Impersonated is the user as whom listproxy sends requests with its own credentials, or nil: then
// the caller's credentials are sent.
func (id Identity) Impersonated() *user.DefaultInfo { return id.impersonated }

// Named returns the user whom Impersonate-* headers name to the upstream, or nil: listproxy's, or the caller's own.
func (id Identity) Named() *user.DefaultInfo { return cmp.Or(id.impersonated, id.named) }

// Impersonator returns who needs the right to impersonate [Identity.Named]: the caller, without the user
// whom the caller names, or listproxy's own account.
func (id Identity) Impersonator() Identity {
	if id.impersonated != nil {
		return Identity{own: true}
	}
	if id.named != nil {
		id.named, id.by, id.key = nil, policy.PlainToken, id.credentials
	}
	return id
}

// IsOwn reports whether it is listproxy's own account, which no caller is. Its key is zero.
func (id Identity) IsOwn() bool { return id.own }

// Present sets the headers in h that show the upstream who the caller is. For nobody, and for listproxy's
// own account, it changes nothing.
func (id Identity) Present(h http.Header) {
	if named := id.Named(); named != nil {
		setImpersonation(h, named)
	}
	if id.authorization != nil {
		h.Set("Authorization", *id.authorization)
	}
}

// Known reports whether there is a caller: it is false for nobody, the zero Identity.
func (id Identity) Known() bool { return id.authorization != nil || id.impersonated != nil || id.own }

// BringsToken reports whether the upstream sees a token in what the caller brings.
func (id Identity) BringsToken() bool {
	return id.authorization != nil && id.by != policy.NoToken
}

// Credentials returns the kind of the caller's credentials, for policy.Parse.
func (id Identity) Credentials() policy.Credentials {
	if id.impersonated != nil {
		return policy.Impersonated
	}
	return id.by
}

// String implements fmt.Stringer without the credential.
func (Identity) String() string { return hiddenIdentity }

// GoString implements fmt.GoStringer without the credential.
func (Identity) GoString() string { return hiddenIdentity }

// Format implements fmt.Formatter without the credential, for every verb.
func (Identity) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hiddenIdentity) }

// LogValue implements slog.LogValuer without the credential.
func (Identity) LogValue() slog.Value { return slog.StringValue(hiddenIdentity) }

var (
	_ fmt.Formatter  = Identity{}
	_ fmt.Stringer   = Identity{}
	_ fmt.GoStringer = Identity{}
	_ slog.LogValuer = Identity{}
)

// identitySecret makes the keys of identities. It is random and lives as long as the process.
// So a key alone is of no use to anyone who reads it in a dump: without the secret nobody can
// check guesses of a token against it, or compare it with the keys of another process.
type identitySecret [sha256.Size]byte

func newIdentitySecret() (s identitySecret) {
	_, _ = rand.Read(s[:]) // which never fails
	return s
}

// ofAuthorization returns the identity of a caller who sends this Authorization value. by is the
// kind of credentials in the value. token is the token in it, if it has one in the usual form.
func (s *identitySecret) ofAuthorization(value string, by policy.Credentials, token string) Identity {
	id := Identity{authorization: &value, by: by}
	kind, credential := byte(keyOfAuthorization), value
	if by == policy.PlainToken {
		id.token = &token
		kind, credential = keyOfToken, token // however the scheme is written
	}
	mac := hmac.New(sha256.New, s[:])
	_, _ = mac.Write([]byte{kind}) // a hash takes everything
	_, _ = io.WriteString(mac, credential)
	mac.Sum(id.credentials[:0])
	id.key = id.credentials
	return id
}

// ofImpersonated returns the identity of a verified user.
func (s *identitySecret) ofImpersonated(u *user.DefaultInfo) Identity {
	key := s.keyOf(u, keyOfImpersonated)
	return Identity{impersonated: u, key: key, credentials: key}
}

// impersonating returns the identity of a caller with a token who impersonates a user.
func (s *identitySecret) impersonating(id Identity, u *user.DefaultInfo) Identity {
	id.named, id.by = u, policy.Impersonating
	id.key = s.keyOf(u, append([]byte{keyOfImpersonating}, id.credentials[:]...)...)
	return id
}

// keyOf returns the key of a user, after a prefix whose length follows from its first byte.
func (s *identitySecret) keyOf(u *user.DefaultInfo, prefix ...byte) (key Key) {
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

// writeStrings writes a list, each of its strings after its length, so that no two lists
// write the same.
func writeStrings(h hash.Hash, list ...string) {
	var number [binary.MaxVarintLen64]byte
	write := func(n uint64) { _, _ = h.Write(binary.AppendUvarint(number[:0], n)) }
	write(uint64(len(list)))
	for _, s := range list {
		write(uint64(len(s)))
		_, _ = io.WriteString(h, s)
	}
}
