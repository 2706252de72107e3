package proxy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
)

// hiddenIdentity is all that an Identity ever prints.
const hiddenIdentity = "Identity(hidden)"

// Identity is what makes the upstream see a caller as that caller: the value
// of the request's Authorization header. It carries the value, to be sent with
// a review, and a key that stands for the value wherever something is
// remembered, so that no credential is kept beyond its request.
//
// The zero Identity is nobody: a Reviewer never says yes to it.
//
// An Identity never prints its credential, whatever the verb. It is immutable.
type Identity struct {
	// authorization is a pointer because fmt calls no methods on the
	// unexported fields of other structs: printed from there it is an address.
	authorization *string
	key           identityKey
}

// identityKey is an HMAC of an Authorization header's value.
type identityKey [sha256.Size]byte

// Identifier makes Identities. Its key is random and lives as long as the
// process, so that an identity's key is of no use to anyone who reads it from
// memory or from a dump: tokens cannot be guessed against it elsewhere, and
// keys of different processes cannot be compared.
//
// It is safe for concurrent use.
type Identifier struct {
	secret [sha256.Size]byte
}

// NewIdentifier returns an Identifier with a new random key.
func NewIdentifier() (*Identifier, error) {
	i := &Identifier{}
	if _, err := rand.Read(i.secret[:]); err != nil {
		return nil, fmt.Errorf("no random key to hide the callers' credentials with: %w", err)
	}
	return i, nil
}

// Identify returns the identity that r brings with it. A request without
// exactly one Authorization value that is not empty has none: the policy
// forwards it before, and the zero Identity that it gets here is never allowed
// anything.
func (i *Identifier) Identify(r *http.Request) Identity {
	values := r.Header["Authorization"]
	if len(values) != 1 || values[0] == "" {
		return Identity{}
	}
	value := values[0]
	id := Identity{authorization: &value}
	mac := hmac.New(sha256.New, i.secret[:])
	_, _ = io.WriteString(mac, value) // a hash takes everything
	mac.Sum(id.key[:0])
	return id
}

// known says whether there is a credential at all.
func (id Identity) known() bool { return id.authorization != nil }

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
