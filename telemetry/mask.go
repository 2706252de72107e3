package telemetry

import (
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// Masked is what the log has in place of a credential.
const Masked = "MASKED"

// sensitiveWords are words in the names of credentials. If a key has such a word, its value is masked. The key is first written
// in lower case, without hyphens and underscores: "Client-Key_Data" has "keydata".
var sensitiveWords = []string{
	"authorization", "bearer", "token", "cookie", "password", "passwd",
	"secret", "credential", "apikey", "privatekey", "keydata",
	"secwebsocketprotocol", // the header in which a browser sends its bearer token
}

// sensitivePatterns match credentials in a finished line. The first group of a pattern, if there is one, is kept, and the rest
// of the match is replaced by [Masked]: "Bearer x" becomes "Bearer MASKED". So the reader of the log knows what was masked.
var sensitivePatterns = []*regexp.Regexp{
	// "Bearer x" and "Basic x", anywhere in the line.
	regexp.MustCompile(`(?i)(\bbearer\s+)[a-z0-9._~+/=-]+`),
	regexp.MustCompile(`(\b[Bb]asic\s+)[A-Za-z0-9+/]{4,}=*`),
	// The websocket sub-protocol that carries a bearer token.
	regexp.MustCompile(`(base64url\.bearer\.authorization\.k8s\.io\.)[A-Za-z0-9_-]+`),
	// JSON web tokens, as service accounts have them.
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	// Bootstrap tokens, like abcdef.0123456789abcdef (k8s.io/cluster-bootstrap, token/api). An Event's name can end like one,
	// as web-x2x8qz.17a9f3b2c4d5e6f7 does. It is kept, since the six characters must not follow a hyphen or the like.
	regexp.MustCompile(`(^|[^0-9A-Za-z._-])[0-9a-z]{6}\.[0-9a-z]{16}\b`),
	// User and password in a URL, with the @.
	regexp.MustCompile(`(://)[^/\s@"]+@`),
	// Query parameters.
	regexp.MustCompile(`(?i)([?&][a-z0-9_-]*(?:token|password|secret)=)[^&\s"\\]+`),
	// All that follows "Authorization:" or "Cookie:", in a header line or in an http.Header as fmt prints it.
	regexp.MustCompile(`(?i)(\b(?:authorization|cookie):[ \t]*\[?)[^\r\n"\\\]]+`),
	// Members of a JSON document. In a quoted document each quote has a backslash.
	regexp.MustCompile(`(?i)((?:token|password|passwd|secret|authorization|cookie)\\*"\s*:\s*\[?\\*")[^"\\]+`),
	// Members of a structure or map as fmt prints them.
	regexp.MustCompile(`(?i)((?:token|password|passwd|secret):)[^\s"\\\]}]+`),
	// Private keys in PEM; a line break may be escaped.
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`),
}

// maskAttr returns the attribute a, masked if its key, or the key of a group around it, names a credential.
func maskAttr(groups []string, a slog.Attr) slog.Attr {
	if isSensitive(a.Key) || slices.ContainsFunc(groups, isSensitive) {
		return slog.String(a.Key, Masked)
	}
	return a
}

// separatorRemover removes hyphens and underscores.
var separatorRemover = strings.NewReplacer("-", "", "_", "")

// isSensitive reports whether a key names a credential.
func isSensitive(key string) bool {
	key = strings.ToLower(separatorRemover.Replace(key))
	return slices.ContainsFunc(sensitiveWords, func(word string) bool { return strings.Contains(key, word) })
}

// maskingWriter masks credentials in finished lines, and writes the lines to w. In a line, errors and nested structures are
// text, so maskingWriter also finds credentials inside them, where maskAttr does not look. Each Write gets a whole line from
// slog's handler.
type maskingWriter struct{ w io.Writer }

// Write implements [io.Writer].
func (m *maskingWriter) Write(line []byte) (int, error) {
	if _, err := io.WriteString(m.w, MaskText(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// MaskText returns text with [Masked] in place of each credential that sensitivePatterns find.
func MaskText(text string) string {
	for _, pattern := range sensitivePatterns {
		if pattern.MatchString(text) { // takes half the time of a ReplaceAllString that finds nothing
			text = pattern.ReplaceAllString(text, "${1}"+Masked)
		}
	}
	return text
}
