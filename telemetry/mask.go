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

// sensitiveWords are words by which the key of an attribute, or the name of a header, names a credential. They are
// looked for in lower case and without hyphens and underscores.
var sensitiveWords = []string{
	"authorization", "bearer", "token", "cookie", "password", "passwd",
	"secret", "credential", "apikey", "privatekey", "keydata",
	"secwebsocketprotocol", // has a browser's bearer token
}

// sensitiveText finds credentials in a finished line by their form. The first group, if there is one, is kept, so that
// the reader sees what stood there.
var sensitiveText = []*regexp.Regexp{
	// Authorization values, with or without the header's name.
	regexp.MustCompile(`(?i)(\bbearer\s+)[a-z0-9._~+/=-]+`),
	regexp.MustCompile(`(\b[Bb]asic\s+)[A-Za-z0-9+/]{4,}=*`),
	// The websocket sub-protocol that carries a bearer token.
	regexp.MustCompile(`(base64url\.bearer\.authorization\.k8s\.io\.)[A-Za-z0-9_-]+`),
	// JSON web tokens, as service accounts have them.
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	// Bootstrap tokens (k8s.io/cluster-bootstrap, token/api), but not the names of Events, which end like them.
	regexp.MustCompile(`(^|[^0-9A-Za-z._-])[0-9a-z]{6}\.[0-9a-z]{16}\b`),
	// User and password in a URL.
	regexp.MustCompile(`(://)[^/\s@"]+(?:@)`),
	// Query parameters.
	regexp.MustCompile(`(?i)([?&][a-z0-9_-]*(?:token|password|secret)=)[^&\s"\\]+`),
	// Credentials in a header line, or in an http.Header as fmt prints it.
	regexp.MustCompile(`(?i)(\b(?:authorization|cookie):[ \t]*\[?)[^\r\n"\\\]]+`),
	// Members of a JSON document, quoted once more or not.
	regexp.MustCompile(`(?i)((?:token|password|passwd|secret|authorization|cookie)\\*"\s*:\s*\[?\\*")[^"\\]+`),
	// Members of a structure or map as fmt prints it.
	regexp.MustCompile(`(?i)((?:token|password|passwd|secret):)[^\s"\\\]}]+`),
	// Private keys in PEM; a line break may be escaped.
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`),
}

// maskAttr masks an attribute by its key, or by the key of a group that it is in.
func maskAttr(groups []string, a slog.Attr) slog.Attr {
	if isSensitive(a.Key) || slices.ContainsFunc(groups, isSensitive) {
		return slog.String(a.Key, Masked)
	}
	return a
}

var withoutSeparators = strings.NewReplacer("-", "", "_", "")

// isSensitive reports whether a key names a credential.
func isSensitive(key string) bool {
	key = strings.ToLower(withoutSeparators.Replace(key))
	return slices.ContainsFunc(sensitiveWords, func(word string) bool { return strings.Contains(key, word) })
}

// maskingWriter masks what looks like a credential in each line. In a finished line errors, nested structures and
// values of any type have become text.
type maskingWriter struct{ w io.Writer }

// Write implements [io.Writer].
func (m *maskingWriter) Write(line []byte) (int, error) {
	if _, err := io.WriteString(m.w, MaskText(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// MaskText masks what looks like a credential in a text, as the log does.
func MaskText(text string) string {
	for _, pattern := range sensitiveText {
		if pattern.MatchString(text) { // takes half the time of a replacement that finds nothing
			text = pattern.ReplaceAllString(text, "${1}"+Masked)
		}
	}
	return text
}
