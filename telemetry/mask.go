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

// sensitiveWords mark the key of a credential: it contains at least one of them. Keys are compared in lower case, without hyphens
// and underscores.
var sensitiveWords = []string{
	"authorization", "bearer", "token", "cookie", "password", "passwd",
	"secret", "credential", "apikey", "privatekey", "keydata",
	"secwebsocketprotocol", // the header in which a browser sends its bearer token
}

// sensitivePatterns match credentials in a finished line. A match is masked, except its first group, which tells the reader
// what was masked.
var sensitivePatterns = []*regexp.Regexp{
	// "Bearer x" and "Basic x", anywhere in the line.
	regexp.MustCompile(`(?i)(\bbearer\s+)[a-z0-9._~+/=-]+`),
	regexp.MustCompile(`(\b[Bb]asic\s+)[A-Za-z0-9+/]{4,}=*`),
	// The websocket sub-protocol that carries a bearer token.
	regexp.MustCompile(`(base64url\.bearer\.authorization\.k8s\.io\.)[A-Za-z0-9_-]+`),
	// JSON web tokens, as service accounts have them.
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	// Bootstrap tokens, like abcdef.0123456789abcdef (k8s.io/cluster-bootstrap, token/api). The name of an Event ends like one, but is
	// kept, since another part comes before.
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

// maskAttr masks an attribute if its key, or the key of a group around it, names a credential.
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

// maskingWriter masks credentials in finished lines. There, errors and nested structures are text, too, so it finds what maskAttr
// cannot see. Each Write gets a whole line, as slog's handlers write it.
type maskingWriter struct{ w io.Writer }

// Write implements [io.Writer].
func (m *maskingWriter) Write(line []byte) (int, error) {
	if _, err := io.WriteString(m.w, MaskText(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// MaskText masks the parts of a text that look like a credential, as the log does.
func MaskText(text string) string {
	for _, pattern := range sensitivePatterns {
		if pattern.MatchString(text) { // takes half the time of a ReplaceAllString that finds nothing
			text = pattern.ReplaceAllString(text, "${1}"+Masked)
		}
	}
	return text
}
