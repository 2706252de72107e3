package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Masked stands in the log where a credential stood.
const Masked = "MASKED"

// sensitiveWords are words of credentials: an attribute's key, or a header's name, that contains one names a
// credential. They are compared with the key in lower case and without hyphens and underscores.
var sensitiveWords = []string{
	"authorization", "bearer", "token", "cookie", "password", "passwd",
	"secret", "credential", "apikey", "privatekey", "keydata",
	// A browser's websocket carries its bearer token here.
	"secwebsocketprotocol",
}

// sensitiveText finds credentials in a finished line by their looks. The first
// group, where there is one, is kept, so that the reader sees what was there.
var sensitiveText = []*regexp.Regexp{
	// Authorization values, with or without the header's name.
	regexp.MustCompile(`(?i)(\bbearer\s+)[a-z0-9._~+/=-]+`),
	regexp.MustCompile(`(\b[Bb]asic\s+)[A-Za-z0-9+/]{4,}=*`),
	// The websocket sub-protocol that carries a bearer token.
	regexp.MustCompile(`(base64url\.bearer\.authorization\.k8s\.io\.)[A-Za-z0-9_-]+`),
	// JSON web tokens, as service accounts have them.
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	// User and password in a URL.
	regexp.MustCompile(`(://)[^/\s@"]+(?:@)`),
	// Query parameters.
	regexp.MustCompile(`(?i)([?&][a-z0-9_-]*(?:token|password|secret)=)[^&\s"\\]+`),
	// Cookies, as a header line or as a printed header map.
	regexp.MustCompile(`(?i)(\b(?:set-)?cookie:[ \t]*\[?)[^\r\n"\\\]]+`),
	// Members of a JSON document, quoted once more or not.
	regexp.MustCompile(`(?i)((?:token|password|passwd|secret|authorization|cookie)\\*"\s*:\s*\[?\\*")[^"\\]+`),
	// Members of a structure or map as fmt prints it.
	regexp.MustCompile(`(?i)((?:token|password|passwd|secret):)[^\s"\\\]}]+`),
	// Private keys in PEM; a line break may be escaped.
	regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`),
}

// maskAttr is the handlers' ReplaceAttr: it masks attributes by their key, or by
// the key of a group they are in.
func maskAttr(groups []string, a slog.Attr) slog.Attr {
	if isSensitive(a.Key) || slices.ContainsFunc(groups, isSensitive) {
		return slog.String(a.Key, Masked)
	}
	if a.Value.Kind() == slog.KindAny {
		if h, ok := a.Value.Any().(http.Header); ok {
			return slog.Any(a.Key, maskHeader(h))
		}
	}
	return a
}

// maskHeader returns a copy of h without the values of sensitive fields.
func maskHeader(h http.Header) http.Header {
	masked := make(http.Header, len(h))
	for name, values := range h {
		if isSensitive(name) {
			values = []string{Masked}
		}
		masked[name] = values
	}
	return masked
}

func isSensitive(key string) bool {
	key = strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(key))
	for _, word := range sensitiveWords {
		if strings.Contains(key, word) {
			return true
		}
	}
	return false
}

// maskingWriter masks what looks like a credential in each line. It looks at the
// line as it will be written, and not at the attributes, because there errors,
// nested structures and values of any type have all become text.
type maskingWriter struct{ w io.Writer }

// Write implements [io.Writer].
func (m *maskingWriter) Write(line []byte) (int, error) {
	masked := line
	for _, pattern := range sensitiveText {
		if pattern.Match(masked) {
			masked = pattern.ReplaceAll(masked, []byte("${1}"+Masked))
		}
	}
	if _, err := m.w.Write(maskBootstrapTokens(masked)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// MaskText replaces what looks like a credential in a text, as the log does.
func MaskText(text string) string {
	for _, pattern := range sensitiveText {
		text = pattern.ReplaceAllString(text, "${1}"+Masked)
	}
	return string(maskBootstrapTokens([]byte(text)))
}
