package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/listproxy/listproxy/proxy/limits"
)

// maxParsedToken bounds the length, in bytes, of a token that is parsed for its subject.
const maxParsedToken = 64 << 10

// The first word that is hashed into a flow keeps the flows of users, token subjects and addresses apart.
const (
	userPrefix    = "user"
	subjectPrefix = "subject"
	addressPrefix = "address"
)

// FlowOf returns the flow of the requests of a caller whom kube-apiserver accepts. All requests of a flow share the flow's
// part of the limits. Nobody gets more by using many tokens, if the user is known. The flow is
//
//   - of a verified client certificate: that of the user's name
//   - of a JSON web token: that of its issuer and subject, which can be trusted since kube-apiserver has accepted the token
//   - otherwise: that of the credentials themselves
func FlowOf(id Identity) limits.Flow {
	if verified := id.VerifiedUser(); verified != nil {
		return hashFlow(userPrefix, verified.Name)
	}
	if id.token != nil {
		if issuer, subject, ok := tokenSubject(*id.token); ok {
			return hashFlow(subjectPrefix, issuer, subject)
		}
	}
	return limits.Flow(id.callerKey)
}

// FlowOfAddress returns the flow of the requests of all callers at an address who are not accepted. There is one flow for
// each IPv4 address or IPv6 network (/64), since made-up tokens cost their sender nothing.
func FlowOfAddress(remoteAddr string) limits.Flow {
	return hashFlow(addressPrefix, limits.NetworkOf(remoteAddr))
}

// hashFlow returns the hash of words, each with its length: ("a", "bc") and ("ab", "c") are two flows.
func hashFlow(words ...string) (flow limits.Flow) {
	h := sha256.New()
	writeStrings(h, words...)
	h.Sum(flow[:0]) // fills flow
	return flow
}

// tokenSubject returns the issuer and subject of a JSON web token (RFC 7519). It does not verify the token, which
// kube-apiserver must have accepted. ok is false for any other token.
func tokenSubject(token string) (issuer, subject string, ok bool) {
	if len(token) > maxParsedToken || strings.Count(token, ".") != 2 {
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
