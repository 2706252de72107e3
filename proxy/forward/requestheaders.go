package forward

import (
	"net"
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/auth"
)

// adaptRequestHeader turns h, the header of a caller's request without hop-by-hop headers, into the header of the request to
// the API server. remoteAddr is the address of the connection's peer.
func adaptRequestHeader(h http.Header, caller auth.Identity, remoteAddr string) {
	removeCallerClaims(h)
	hideIdempotencyKeys(h)
	if caller.VerifiedUser() != nil {
		caller.SetHeaders(h) // other callers have their credentials in the header already
	}
	if host, _, err := net.SplitHostPort(remoteAddr); err == nil {
		h.Set("X-Forwarded-For", host)
	}
}

// removeCallerClaims removes the headers that only a trusted proxy may set. X-Remote-* name the caller (front proxy).
// Forwarded, X-Forwarded-* and X-Real-Ip have the caller's address, which kube-apiserver writes into its audit events
// (k8s.io/apimachinery/pkg/util/net.SourceIPs).
//
// Authorization and Impersonate-* stay: the API server judges them together.
func removeCallerClaims(h http.Header) {
	for name := range h {
		normalized := normalizeName(name)
		if normalized == "forwarded" || normalized == "x-real-ip" ||
			strings.HasPrefix(normalized, "x-forwarded-") || strings.HasPrefix(normalized, "x-remote-") {
			delete(h, name)
		}
	}
}

// normalizeName returns one spelling, in lower case and with dashes, for all header names that a server may take for the same
// name. net/http does not canonicalize a name that is not a valid token, so names may differ in case. A server behind the API
// server's address may read an underscore as a dash.
func normalizeName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// hideIdempotencyKeys writes the names of two headers in lower case. Servers read them as before, but net/http does not find them.
// With one of these headers, net/http would send a write again if the connection ended before the answer. But kube-apiserver
// ignores the headers, and may have carried out the write.
func hideIdempotencyKeys(h http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
}

// identityHeaderInConnection returns the name of an identity header that the Connection header lists, or "". Connection must
// not list a header that is meant for all recipients, so the request is malformed.
//
// It is dangerous, too. A proxy must remove the headers that Connection lists (RFC 9110, 7.6.1). If a proxy in front of listproxy
// impersonates its callers, a caller could name Impersonate-User in Connection, so that listproxy would remove the header that the
// other proxy has set. The caller would act with that proxy's own rights.
func identityHeaderInConnection(h http.Header) string {
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
