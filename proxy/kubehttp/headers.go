package kubehttp

import (
	"net"
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/policy"
)

// RemoveCallerClaims removes from a request's header what a caller may not say
// about itself through a proxy: who it is by a front proxy's word (X-Remote-*)
// and where it comes from (Forwarded, X-Forwarded-*, X-Real-Ip). kube-apiserver
// believes the latter two kinds of address when it writes audit events
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

// ReadAlike is the one form of all names of headers that some server may take for the same: names
// that are no valid tokens are not canonical in a map of net/http's, and an HTTP server behind the
// upstream's address may read an underscore as a dash.
func ReadAlike(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// SetForwardedFor makes X-Forwarded-For say where the request came from: the
// address of the connection's peer and nothing else.
func SetForwardedFor(h http.Header, remoteAddr string) {
	if host, _, err := net.SplitHostPort(remoteAddr); err == nil {
		h.Set("X-Forwarded-For", host)
	}
}

// IdentityNamedInConnection returns the name of an identity header that the
// Connection header lists, or "". A proxy has to remove what is listed there
// (RFC 9110, 7.6.1), and a request without its Impersonate-User header would be
// done with the rights of whoever authenticated it. A caller behind another
// proxy, one that adds such headers, must not be able to have them removed, so
// such a request is refused as malformed: a sender must not list a field that is
// meant for all recipients.
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

// UpgradeProtocol returns what the header asks, or agrees, to upgrade the
// connection to: "websocket", "SPDY/3.1", or "" if it does not speak of that.
func UpgradeProtocol(h http.Header) string {
	for _, value := range h["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "Upgrade") {
				return h.Get("Upgrade")
			}
		}
	}
	return ""
}
