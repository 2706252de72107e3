package telemetry

import (
	"regexp"
	"strings"
)

var (
	// productPattern matches a program's name and version: up to 64 characters of a token (RFC 9110, 5.6.2) and slashes.
	productPattern = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~/-]{1,64}$")
	// longRuns matches runs of letters, digits, _, + and =, as in credentials, that are longer than most words.
	longRuns = regexp.MustCompile(`[A-Za-z0-9_+=]{20,}`)
)

// UserAgent returns the first word of a User-Agent header, which names the program and its version. Clients can write anything
// there: UserAgent returns [Masked] for a word that is no product, or may be a credential, and (none) for an empty header.
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

// looksRandom reports whether a word has a long run in which digits and other characters are mixed, as credentials have.
func looksRandom(word string) bool {
	const digits = "0123456789"
	for _, run := range longRuns.FindAllString(word, -1) {
		if strings.ContainsAny(run, digits) && strings.Trim(run, digits) != "" {
			return true
		}
	}
	return false
}
