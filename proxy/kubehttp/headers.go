package kubehttp

import (
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/listproxy/listproxy/policy"
)

// RemoveCallerClaims removes the headers that only a trusted proxy may set: the caller's name (X-Remote-*, from a front
// proxy) and address (Forwarded, X-Forwarded-*, X-Real-Ip). kube-apiserver writes the addresses of X-Forwarded-For and
// X-Real-Ip into its audit events (k8s.io/apimachinery/pkg/util/net.SourceIPs).
//
// Authorization and Impersonate-* stay: the API server judges them together.
func RemoveCallerClaims(h http.Header) {
	for name := range h {
		normalized := NormalizeName(name)
		if normalized == "forwarded" || normalized == "x-real-ip" ||
			strings.HasPrefix(normalized, "x-forwarded-") || strings.HasPrefix(normalized, "x-remote-") {
			delete(h, name)
		}
	}
}

// NormalizeName returns the same text for all header names that some server may read as one name. Such names may differ
// in case, since net/http does not canonicalize a name that is not a valid token. They may also differ in underscores and
// dashes, since a server behind the upstream's address may read one as the other.
func NormalizeName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// SetForwardedFor sets X-Forwarded-For to the host in remoteAddr, the address of the connection's peer.
func SetForwardedFor(h http.Header, remoteAddr string) {
	if host, _, err := net.SplitHostPort(remoteAddr); err == nil {
		h.Set("X-Forwarded-For", host)
	}
}

// IdentityNamedInConnection returns the name of an identity header that the Connection header lists, or "". A request with
// such a header is to be refused as malformed: a sender must not list a field that is meant for all recipients.
//
// A proxy has to remove the headers that Connection lists (RFC 9110, 7.6.1). Without its Impersonate-User header, a request
// would have the rights of its authenticated sender. That may be another proxy in front, whose callers must not be able
// to have the header removed.
func IdentityNamedInConnection(h http.Header) string {
	for _, value := range h["Connection"] {
		for option := range strings.SplitSeq(value, ",") {
			name := http.CanonicalHeaderKey(strings.TrimSpace(option))
			if name == "Authorization" || policy.IsImpersonationHeader(name) {
				return name
			}
		}
	}
	return ""
}

// UpgradeProtocol returns the protocol to which the header of a request or a 101 upgrades the connection, like "websocket"
// or "SPDY/3.1"; "" if there is no upgrade.
func UpgradeProtocol(h http.Header) string {
	if httpguts.HeaderValuesContainsToken(h["Connection"], "Upgrade") {
		return h.Get("Upgrade")
	}
	return ""
}
