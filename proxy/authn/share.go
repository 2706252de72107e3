package authn

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/listproxy/listproxy/proxy/inflight"
)

// maxReadToken is the length of the longest token, in bytes, whose subject is read. A longer one
// has a share of its own.
const maxReadToken = 64 << 10

// The first string of a share's key distinguishes users, token subjects and addresses.
const (
	shareOfUser    = "user"
	shareOfSubject = "subject"
	shareOfAddress = "address"
)

// ShareKey is the key of a caller's share.
//
// A share belongs to a user, where that is known, and not to a token: somebody with many tokens must
// not get many shares. For a user who was verified here it is the user's name, and for a JSON web
// token its issuer and subject. These are believed because kube-apiserver has accepted the token. Any
// other token says nothing of its user, and has a share of its own.
//
// All callers whom kube-apiserver has not accepted have one share for each IPv4 address or IPv6
// network: made-up tokens cost their sender nothing, so they must not get a share each.
func ShareKey(id Identity, accepted bool, remoteAddr string) inflight.ShareKey {
	if !accepted {
		return addressShare(remoteAddr)
	}
	if id.Impersonated() != nil {
		return shareOf(shareOfUser, id.Impersonated().Name)
	}
	if id.token != nil {
		if issuer, subject, ok := tokenSubject(*id.token); ok {
			return shareOf(shareOfSubject, issuer, subject)
		}
	}
	return inflight.ShareKey(id.Key())
}

func addressShare(remoteAddr string) inflight.ShareKey {
	from := inflight.NetworkOf(remoteAddr)
	if !from.IsValid() {
		return shareOf(shareOfAddress, remoteAddr) // no address of TCP
	}
	return shareOf(shareOfAddress, from.String())
}

func shareOf(of ...string) (key inflight.ShareKey) {
	h := sha256.New()
	writeStrings(h, of...)
	h.Sum(key[:0])
	return key
}

// tokenSubject reads issuer and subject of a JSON web token (RFC 7519). It verifies nothing: use it
// only for tokens that kube-apiserver has accepted, and only to find out which of them belong to
// the same user.
func tokenSubject(token string) (issuer, subject string, ok bool) {
	if len(token) > maxReadToken || strings.Count(token, ".") != 2 {
		return "", "", false
	}
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	claims, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", "", false
	}
	var who struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	// Names are case-sensitive here, as in the programs that verify tokens.
	if err := utiljson.Unmarshal(claims, &who); err != nil {
		return "", "", false
	}
	return who.Issuer, who.Subject, who.Issuer != "" && who.Subject != ""
}
