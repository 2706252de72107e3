package policy

import (
	"net/http"
	"net/textproto"
	"strings"
)

// isPlainRequest reports whether a request has no body, asks for no upgrade, and has no header that would change the
// upstream's answer. Headers that the API server ignores on lists, like Range and If-None-Match, do not matter.
func isPlainRequest(r *http.Request) bool {
	hasBody := r.ContentLength != 0 || len(r.TransferEncoding) > 0 // -1 is an unknown length
	asksForUpgrade := r.Header["Upgrade"] != nil
	// An upstream with --cors-allowed-origins answers with CORS headers, which answers from memory lack.
	isFromOtherOrigin := r.Header["Origin"] != nil
	return !hasBody && !asksForUpgrade && !isFromOtherOrigin && isPlainConnection(r.Header["Connection"])
}

// isPlainConnection reports whether all options of the Connection headers are keep-alive or close. Any other option names a
// header that a proxy must remove (RFC 9110, 7.6.1).
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
