package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/listproxy/listproxy/proxy/limits"
)

// A flow is a hash of several words. The first word says what the others are, so that a user, the subject of a token and an
// address never share a flow.
const (
	userWord    = "user"
	subjectWord = "subject"
	addressWord = "address"
)

// FlowOf returns the flow for a caller whom kube-apiserver accepts. The limits (package limits) are shared fairly between
// flows, so a caller's requests should all be in one flow. The flow is a hash, which depends on the credentials:
//
//	credentials                     hash of
//	a verified client certificate   the name of the user
//	a JSON web token                issuer and subject, which can be trusted, since kube-apiserver has accepted the token
//	others                          the credentials (callerKey)
//
// In the first two cases, nobody gets a larger share by using many credentials. If the caller impersonates a user, the flow is
// still the caller's own.
func FlowOf(id Identity) limits.Flow {
	if verified := id.VerifiedUser(); verified != nil {
		return hashFlow(userWord, verified.Name)
	}
	if id.token != nil {
		if issuer, subject, ok := tokenSubject(*id.token); ok {
			return hashFlow(subjectWord, issuer, subject)
		}
	}
	return limits.Flow(id.callerKey)
}

// FlowOfAddress returns the flow for a caller whom kube-apiserver has not accepted. The flow is a hash of the caller's IPv4
// address or IPv6 network (/64), and not of the token, since made-up tokens cost their sender nothing.
func FlowOfAddress(remoteAddr string) limits.Flow {
	return hashFlow(addressWord, networkOf(remoteAddr))
}

// networkOf returns the IP address of a TCP address for IPv4, and the /64 network of the IP address for IPv6. It returns a text
// that is not a TCP address unchanged.
func networkOf(remoteAddr string) string {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return remoteAddr
	}
	const networkBits = 64 // one host often has all addresses of a /64
	address := peer.Addr().Unmap().WithZone("")
	if address.Is6() {
		address = netip.PrefixFrom(address, networkBits).Masked().Addr()
	}
	return address.String()
}

// hashFlow returns the flow for a list of words. Since each word is quoted, ("a", "bc") and ("ab", "c") are two flows.
func hashFlow(words ...string) limits.Flow { return sha256.Sum256(fmt.Appendf(nil, "%q", words)) }

// tokenSubject returns the issuer and subject of a JSON web token (RFC 7519) that kube-apiserver has accepted. It does not
// verify the token. [http.Server.MaxHeaderBytes] bounds the token's length. ok is false if token is not a JSON web token, or
// lacks an issuer or a subject.
func tokenSubject(token string) (issuer, subject string, ok bool) {
	parts := strings.SplitN(token, ".", 4) // a fourth part would be one too many
	if len(parts) != 3 {                   // header, payload and signature
		return "", "", false
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", "", false
	}
	var registered struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	// utiljson, like the programs that verify tokens, distinguishes upper and lower case in the names of members.
	err = utiljson.Unmarshal(claims, &registered)
	ok = err == nil && registered.Issuer != "" && registered.Subject != ""
	return registered.Issuer, registered.Subject, ok
}
