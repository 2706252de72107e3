package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/listproxy/listproxy/proxy/limits"
)

// maxReadToken is the length, in bytes, of the longest token whose subject is read.
const maxReadToken = 64 << 10

// The first word that is hashed into a flow distinguishes users, token subjects and addresses.
const (
	userFlow    = "user"
	subjectFlow = "subject"
	addressFlow = "address"
)

// FlowOf returns the flow of a caller's requests. accepted says whether kube-apiserver accepts the caller's credentials.
// All requests of a flow share the flow's part of the limits.
//
// If the user is known, the flow is the user's, so that nobody gets more by using many tokens. The user is the name in a
// verified certificate, or the issuer and subject of a JSON web token, which are true since kube-apiserver has accepted
// the token. Any other accepted token has a flow of its own.
//
// Callers who are not accepted have one flow for each IPv4 address or IPv6 network (/64), since made-up tokens cost their
// sender nothing.
func FlowOf(id Identity, accepted bool, remoteAddr string) limits.Flow {
	if !accepted {
		return hashFlow(addressFlow, limits.NetworkOf(remoteAddr))
	}
	if id.VerifiedUser() != nil {
		return hashFlow(userFlow, id.VerifiedUser().Name)
	}
	if id.token != nil {
		if issuer, subject, ok := tokenSubject(*id.token); ok {
			return hashFlow(subjectFlow, issuer, subject)
		}
	}
	return limits.Flow(id.callerKey)
}

func hashFlow(words ...string) (flow limits.Flow) {
	h := sha256.New()
	writeStrings(h, words...)
	h.Sum(flow[:0])
	return flow
}

// tokenSubject returns the issuer and subject of a JSON web token (RFC 7519). It does not verify the token, which
// kube-apiserver must have accepted. ok is false for any other token.
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
	var registered struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	// The names of members are case-sensitive here, as in the programs that verify tokens.
	if err := utiljson.Unmarshal(claims, &registered); err != nil {
		return "", "", false
	}
	return registered.Issuer, registered.Subject, registered.Issuer != "" && registered.Subject != ""
}
