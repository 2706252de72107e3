package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

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
// never give the HMAC the same input: fmt sorts maps, encloses lists in brackets, and quotes each string in a way that
// strconv.Unquote can reverse.
func (s *identitySecret) userKey(prefix []byte, u *user.DefaultInfo) (key Key) {
	mac := hmac.New(sha256.New, s[:])
	_, _ = mac.Write(prefix)
	_, _ = fmt.Fprintf(mac, "%q", []any{u.Name, u.UID, u.Groups, u.Extra})
	mac.Sum(key[:0])
	return key
}
