package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Key identifies a caller in maps and caches without revealing the caller's credential. It is an HMAC of one of the four inputs
// below.
type Key [sha256.Size]byte

// The first byte of an HMAC's input says what follows.
const (
	prefixToken         = 't' // a plain token
	prefixAuthorization = 'a' // an Authorization header without a plain token
	prefixVerifiedUser  = 'v' // a verified user
	prefixImpersonating = 'i' // the callerKey of a plain token, and the user whom its caller impersonates
)

// identitySecret is the random secret of the HMACs in keys. Somebody who finds a Key in a dump, but does not have the
// secret, can neither check guesses of a token against the Key, nor compare the Key with keys of another process.
type identitySecret [sha256.Size]byte

// userKey returns an HMAC of prefix and u. Different arguments never give the HMAC the same input: fmt sorts maps, encloses
// lists in brackets, and quotes each string in a way that strconv.Unquote can reverse. Prefixes with the same first byte must
// have the same length.
func (s *identitySecret) userKey(prefix []byte, u *user.DefaultInfo) (key Key) {
	mac := hmac.New(sha256.New, s[:])
	_, _ = mac.Write(prefix)
	_, _ = fmt.Fprintf(mac, "%q", []any{u.Name, u.UID, u.Groups, u.Extra})
	mac.Sum(key[:0])
	return key
}
