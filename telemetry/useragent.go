package telemetry

import (
	"regexp"
	"strings"
)

var (
	// productPattern matches a program's name and version: up to 64 characters of a token (RFC 9110, 5.6.2) and slashes.
	productPattern = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~/-]{1,64}$")
	// longRuns matches runs of at least 20 letters, digits, _, + and =. Few words are as long, but credentials are.
	longRuns = regexp.MustCompile(`[A-Za-z0-9_+=]{20,}`)
)

// UserAgent returns the first word of a User-Agent header, which names the program and its version: "kubectl/v1.36.3". It
// returns (none) for an empty header. Clients can write anything there, so it returns [Masked] for a word that may be a
// credential, or that does not look like a program's name.
func UserAgent(header string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(header), " ")
	switch {
	case word == "":
		return "(none)"
	case !productPattern.MatchString(word), looksRandom(word), MaskText(word) != word:
		return Masked
	}
	return word
}

// looksRandom reports whether a word has a long run in which digits and other characters are mixed, like
// "vlx3q7h2m5k8n4p6r9t1w0".
func looksRandom(word string) bool {
	const digits = "0123456789"
	for _, run := range longRuns.FindAllString(word, -1) {
		if strings.ContainsAny(run, digits) && strings.Trim(run, digits) != "" {
			return true
		}
	}
	return false
}
