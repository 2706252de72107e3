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

// Each of these is the first word of a hash, so that a user, the subject of a token and an address never share a flow.
const (
	userWord    = "user"
	subjectWord = "subject"
	addressWord = "address"
)

// FlowOf returns the flow for a caller whom kube-apiserver accepts. All requests in one flow share one part of the limits. The
// flow is a hash of
//
//   - the name of the user, for a verified client certificate;
//   - the issuer and subject, for a JSON web token: they can be trusted, since kube-apiserver has accepted the token;
//   - the credentials themselves, for all other callers.
//
// In the first two cases, nobody gets a larger part by using many credentials. The user whom the caller impersonates does not
// matter.
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

// networkOf returns the network of a TCP address: for IPv4 the IP address, for IPv6 the /64 of the IP address. It returns any
// other address unchanged.
func networkOf(remoteAddr string) string {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return remoteAddr
	}
	const bits = 64 // one host often has all addresses of a /64
	address := peer.Addr().Unmap().WithZone("")
	if address.Is6() {
		address = netip.PrefixFrom(address, bits).Masked().Addr()
	}
	return address.String()
}

// hashFlow returns the flow for a list of words. Since each word is quoted, ("a", "bc") and ("ab", "c") are two flows.
func hashFlow(words ...string) limits.Flow { return sha256.Sum256(fmt.Appendf(nil, "%q", words)) }

// tokenSubject returns the issuer and subject of a JSON web token (RFC 7519) that kube-apiserver has accepted. It does not
// verify the token. The token's length is bounded, since that of all headers is ([http.Server.MaxHeaderBytes]). ok is false if
// token is not a JSON web token, or names no issuer or no subject.
func tokenSubject(token string) (issuer, subject string, ok bool) {
	parts := strings.SplitN(token, ".", 4) // header, payload and signature, if there are three
	if len(parts) != 3 {
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
	// The names of members are case-sensitive here, as in the programs that verify tokens.
	if err := utiljson.Unmarshal(claims, &registered); err != nil {
		return "", "", false
	}
	ok = registered.Issuer != "" && registered.Subject != ""
	return registered.Issuer, registered.Subject, ok
}
