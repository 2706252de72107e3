package forward

import (
	"net"
	"net/http"
	"strings"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/auth"
)

// adaptRequestHeader turns h from the header of a caller's request into that of the request to the API server. The hop-by-hop
// headers must have been removed. A caller whom listproxy impersonates gets listproxy's credentials; all other callers keep
// their own. remoteAddr is the caller's address.
func adaptRequestHeader(h http.Header, caller auth.Identity, remoteAddr string) {
	removeProxyHeaders(h)
	hideIdempotencyKeys(h)
	if caller.VerifiedUser() != nil {
		caller.SetHeaders(h)
	}
	if host, _, err := net.SplitHostPort(remoteAddr); err == nil {
		h.Set("X-Forwarded-For", host)
	}
}

// removeProxyHeaders removes the headers that only a trusted proxy may set:
//
//   - X-Remote-*, with which an authenticating proxy names its caller to kube-apiserver
//   - Forwarded, X-Forwarded-* and X-Real-Ip, from which kube-apiserver takes the caller's address for its audit events
//     (k8s.io/apimachinery/pkg/util/net.SourceIPs)
//
// Authorization and Impersonate-* stay: the API server judges them together.
func removeProxyHeaders(h http.Header) {
	for name := range h {
		normalized := normalizeName(name)
		if normalized == "forwarded" || normalized == "x-real-ip" ||
			strings.HasPrefix(normalized, "x-forwarded-") || strings.HasPrefix(normalized, "x-remote-") {
			delete(h, name)
		}
	}
}

// normalizeName returns name in lower case and with dashes, so that names which a server may take for the same become equal.
// net/http leaves the case of a name that is not a valid token as it is. A server behind the API server's address may read an
// underscore as a dash.
func normalizeName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// hideIdempotencyKeys keeps net/http from sending a write again when the connection ends before the answer. kube-apiserver may
// have carried out the write already. But net/http repeats a write that has an Idempotency-Key or X-Idempotency-Key, although
// kube-apiserver ignores both. So hideIdempotencyKeys writes the two names in lower case: net/http does not find them, and
// servers read them as before.
func hideIdempotencyKeys(h http.Header) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := h[name]; ok {
			delete(h, name)
			h[strings.ToLower(name)] = values
		}
	}
}

// identityHeaderInConnection returns the name of a header that says who the caller is, and that Connection lists. It returns ""
// if Connection lists none. Connection must list headers for the next hop only, so such a request is malformed.
//
// Such a request may also be an attack on a proxy in front of listproxy that impersonates its callers. A proxy must remove the
// headers that Connection lists (RFC 9110, 7.6.1). A caller could list Impersonate-User, and listproxy would remove what the
// other proxy has set there. The caller would act with the rights of that proxy.
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
