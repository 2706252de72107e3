package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/listproxy/listproxy/proxy/limits"
)

// maxReadToken is the length of the longest token, in bytes, whose subject is read. A longer one
// is a flow of its own.
const maxReadToken = 64 << 10

// The first string of a flow's key distinguishes users, token subjects and addresses.
const (
	flowOfUser    = "user"
	flowOfSubject = "subject"
	flowOfAddress = "address"
)

// FlowOf returns to which flow a caller's requests belong: who has the limits together.
//
// A flow is a user's, where that is known, and not a token's: somebody with many tokens must not get
// more. For a user who was verified here it is the user's name, and for a JSON web token its issuer
// and subject. These are believed because kube-apiserver has accepted the token. Any other token says
// nothing of its user, and is a flow of its own.
//
// All callers whom kube-apiserver has not accepted are one flow for each IPv4 address or IPv6
// network (/64): made-up tokens cost their sender nothing.
func FlowOf(id Identity, accepted bool, remoteAddr string) limits.Flow {
	if !accepted {
		return flowOf(flowOfAddress, limits.NetworkOf(remoteAddr))
	}
	if id.Impersonated() != nil {
		return flowOf(flowOfUser, id.Impersonated().Name)
	}
	if id.token != nil {
		if issuer, subject, ok := tokenSubject(*id.token); ok {
			return flowOf(flowOfSubject, issuer, subject)
		}
	}
	return limits.Flow(id.credentials)
}

func flowOf(of ...string) (key limits.Flow) {
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
