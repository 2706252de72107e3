package telemetry

import (
	"regexp"
	"strings"
)

var (
	// userAgentForm is the form of a program's name and version: characters of a token (RFC 9110, 5.6.2) and slashes.
	userAgentForm = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~/-]{1,64}$")
	// longRun finds runs that are too long for a word. One with digits and letters may be a token.
	longRun = regexp.MustCompile(`[A-Za-z0-9_+=]{20,}`)
)

// UserAgent returns the first word of a User-Agent header, which is the program and its version. Since a client may
// write anything there, a word of another form, or one that looks like a credential, is [Masked].
func UserAgent(header string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(header), " ")
	switch {
	case word == "":
		return "(none)"
	case !userAgentForm.MatchString(word), looksRandom(word), MaskText(word) != word:
		return Masked
	}
	return word
}

// looksRandom reports whether a word has a long run of both letters and digits.
func looksRandom(word string) bool {
	for _, run := range longRun.FindAllString(word, -1) {
		if strings.ContainsAny(run, "0123456789") && strings.Trim(run, "0123456789") != "" {
			return true
		}
	}
	return false
}
