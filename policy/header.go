package policy

import (
	"net/http"
	"net/textproto"
	"strings"

	"github.com/listproxy/listproxy/policy/reason"
)

// checkPlainRequest returns None if the request has no body, asks for no upgrade, and has no header that would change the
// upstream's answer. Connection may only say whether to keep the connection. Headers that the API server ignores on lists,
// like Range and If-None-Match, do not matter.
func checkPlainRequest(r *http.Request) reason.Reason {
	// A ContentLength of -1 means a body of unknown length.
	if r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
		return reason.NotCanonical
	}
	if r.Header["Upgrade"] != nil || !isPlainConnection(r.Header["Connection"]) {
		return reason.NotCanonical
	}
	// An upstream with --cors-allowed-origins answers with CORS headers, which answers from memory lack.
	if r.Header["Origin"] != nil {
		return reason.NotCanonical
	}
	return reason.None
}

// isPlainConnection reports whether Connection headers have no options but keep-alive and close. Any other option is the
// name of a header, which a proxy must remove (RFC 9110, 7.6.1).
func isPlainConnection(values []string) bool {
	for _, value := range values {
		for option := range strings.SplitSeq(value, ",") {
			option = textproto.TrimString(option)
			if option != "" && !strings.EqualFold(option, "keep-alive") && !strings.EqualFold(option, "close") {
				return false
			}
		}
	}
	return true
}
