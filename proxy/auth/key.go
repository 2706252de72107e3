package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"maps"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Key identifies a caller in maps and caches without revealing the caller's credential. It is an HMAC of a token, of another
// Authorization header, of a verified user, or of a token together with the user whom its caller impersonates.
type Key [sha256.Size]byte

// The first byte of an HMAC's input says which of the four kinds of input follows.
const (
	prefixToken         = 't'
	prefixAuthorization = 'a' // an Authorization header without a plain token
	prefixVerifiedUser  = 'v'
	prefixImpersonating = 'i' // a token, and the user whom its caller impersonates
)

// identitySecret is the random secret of the HMACs in keys. Somebody who finds a Key in a dump, but does not have the
// secret, can neither check guesses of a token against the Key, nor compare it with keys of another process.
type identitySecret [sha256.Size]byte

// userKey returns an HMAC of prefix and u. Prefixes with the same first byte must have the same length. Then different arguments
// never give the HMAC the same input.
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

// writeStrings writes the number of strings to h, then each string after its length. So no two lists write the same bytes.
func writeStrings(h hash.Hash, list ...string) {
	var buffer [binary.MaxVarintLen64]byte
	writeNumber := func(n int) { _, _ = h.Write(binary.AppendUvarint(buffer[:0], uint64(n))) } // #nosec G115 -- a length
	writeNumber(len(list))
	for _, s := range list {
		writeNumber(len(s))
		_, _ = io.WriteString(h, s)
	}
}
