package kubehttp

import (
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/listproxy/listproxy/policy"
)

// RemoveCallerClaims removes from a request's header the claims that a caller may
// not make through a proxy: its name (X-Remote-*, which a front proxy sets)
// and its address (Forwarded, X-Forwarded-*, X-Real-Ip). kube-apiserver
// writes the addresses of X-Forwarded-For and X-Real-Ip into its audit events
// (k8s.io/apimachinery/pkg/util/net.SourceIPs).
//
// Authorization and Impersonate-* stay: they are judged by the API server
// together with the caller's own credentials.
func RemoveCallerClaims(h http.Header) {
	for name := range h {
		alike := ReadAlike(name)
		if alike == "forwarded" || alike == "x-real-ip" ||
			strings.HasPrefix(alike, "x-forwarded-") || strings.HasPrefix(alike, "x-remote-") {
			delete(h, name)
		}
	}
}

// ReadAlike returns the same text for all header names that some server may take for one name.
// Upper and lower case do not matter: net/http gives no canonical form to a name that is not a valid
// token. Nor do underscores and dashes: a server behind the upstream's address may read one as the other.
func ReadAlike(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// SetForwardedFor sets X-Forwarded-For to the address of the connection's peer.
func SetForwardedFor(h http.Header, remoteAddr string) {
	if host, _, err := net.SplitHostPort(remoteAddr); err == nil {
		h.Set("X-Forwarded-For", host)
	}
}

// IdentityNamedInConnection returns the name of an identity header that the
// Connection header lists, or "". A proxy has to remove the headers that are listed
// there (RFC 9110, 7.6.1). Without its Impersonate-User header a request would have
// the rights of its authenticated sender. If another proxy in front adds such
// headers, its callers must not be able to have them removed. So such a request is
// refused as malformed: a sender must not list a field that is meant for all recipients.
func IdentityNamedInConnection(h http.Header) string {
	for _, value := range h["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			name := http.CanonicalHeaderKey(strings.TrimSpace(option))
			if name == "Authorization" || policy.NamesImpersonation(name) {
				return name
			}
		}
	}
	return ""
}

// UpgradeProtocol returns the protocol to which the header asks, or agrees, to upgrade
// the connection: "websocket", "SPDY/3.1", or "" for no upgrade.
func UpgradeProtocol(h http.Header) string {
	if httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return h.Get("Upgrade")
	}
	return ""
}
